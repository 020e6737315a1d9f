"""muP: one learning rate for models of every width.

The maximal update parametrization (Yang et al. 2022). A dimension that grows with the width is infinite; a weight has as many
infinite dimensions as shapes differ between the model and its base, the same model of width `mup_base`. With m, the width in
units of the base:

                      two (linear maps)     one (tables, norms, biases, output)
    initial scale     base / √m             as in the base
    learning rate     1 / m                 1                        (Adam, AdamW; weight decay × m and 1)

and attention scores are divided by d_k instead of √d_k, logits by m. At the base width all of this is the standard model.
"""

from __future__ import annotations

import torch

from regard.errors import SpecError
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.body import BodySpec
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.head import Vocab
from regard.nn.core.mixer import MixerSpec
from regard.nn.layers.feedforward import FeedForward
from regard.nn.mixers.softmax import SoftmaxAttention
from regard.registry import kind_of

Shapes = dict[str, tuple[int, ...]]


def parametrize(spec: ModelSpec, base: int) -> ModelSpec:
    """The model with base width `base`: scales of attention, output and embedding as the parametrization wants them."""
    out = spec.replace("mup_base", base)
    small = narrow(out)
    for path, part in spec.walk():
        if isinstance(part, SoftmaxAttention):
            (_, e), (_, e0) = part.head_shape(spec.width), part.head_shape(small.width)
            scale = e0**-0.5 if part.scale is None else part.scale
            out = out.replace(f"{path}.scale", scale * e0 / e)
        elif isinstance(part, MixerSpec) or (isinstance(part, BodySpec) and not part.layers()):
            raise SpecError(f"mup_base needs softmax attention, and {path} is {kind_of(type(part))!r}; leave it out")
        elif isinstance(part, Tokens) and part.scaled is True:
            out = out.replace(f"{path}.scaled", float(small.width) ** 0.5)
    if not isinstance(spec.head, Vocab) or spec.beside is not None:
        raise SpecError("mup_base needs one head over a vocabulary (head.kind: vocab); leave it out for other heads")
    return out.replace("head.scale", spec.head.scale * base / spec.width)


def narrow(spec: ModelSpec) -> ModelSpec:
    """The base of a model: everything that follows its width is as wide as in a model of width `mup_base`."""
    base = spec.mup_base
    assert base is not None
    out = spec.replace("width", base).replace("mup_base", None)
    for path, part in spec.walk():
        if isinstance(part, FeedForward):
            if part.width * base % spec.width:
                raise SpecError(
                    f"{path}.width should be {part.width} · {base} / {spec.width} in the base model, which is no whole number; "
                    "choose a width that is a multiple of mup_base"
                )
            out = out.replace(f"{path}.width", part.width * base // spec.width)
    return out


def base_shapes(spec: ModelSpec) -> Shapes:
    """The shapes of the base model's weights; nothing is allocated."""
    with torch.device("meta"):
        return {name: tuple(weight.shape) for name, weight in Net(narrow(spec)).named_parameters()}


def growth(shape: tuple[int, ...], base: tuple[int, ...]) -> float:
    """m for a linear map, whose inputs and outputs both grow with the width: by how much its inputs grew; 1 for the rest."""
    grown = [i for i, (now, then) in enumerate(zip(shape, base, strict=True)) if now != then]
    return shape[grown[-1]] / base[grown[-1]] if len(grown) == 2 else 1.0


def rate_factors(net: Net) -> dict[str, float]:
    """The factor of the learning rate for each weight."""
    bases = base_shapes(net.spec)
    return {
        name: 1 / growth(tuple(weight.shape), bases[name]) if name in bases else 1.0
        for name, weight in net.named_parameters()
    }
