"""Initialization: which parameters a scheme draws, and how.

Norms stay as they are made (scale one, shift zero), by the type of the module and not by its name. So does whatever a plugin
brings: modules of classes that are not Regard's keep the weights of their `__init__`, unless `init_plugins` is set.
A subclass of a layer of ours starts as that layer does. Everything else is drawn by the scheme, and its biases are zero.

xavier   linear maps Xavier-uniform, embeddings and lone vectors N(0, 1/d), biases 0   (Vaswani et al., reference code)
normal   N(0, 0.02) everywhere, biases 0                                       (BERT, GPT-1)
gpt2     as normal; maps that feed the stream N(0, 0.02/√(2·layers))           (Radford et al. 2019)
uniform  U(−0.08, 0.08) everywhere, biases 0                                   (Sutskever et al. 2014)
convs2s  tables N(0, 0.1), maps N(0, 1/inputs), which the body adjusts, biases 0   (Gehring et al. 2017)
memn2n   N(0, 0.1) everywhere, biases 0                                        (Sukhbaatar et al. 2015)
neural_gpu   tables U(−1.7, 1.7), maps U(−a, a) with a = 1.8·√(3 / inputs), biases 0   (Kaiser & Sutskever, reference code)
t5       tables of tokens N(0, 1), maps N(0, 1/inputs), queries N(0, 1/(d·e)), so that scores need no scale  (Raffel et al.)

A scheme names a distribution for the shape of a weight; with `mup_base` that is the shape in the base model (`mup.py`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from regard.errors import UnknownName
from regard.model.mup import base_shapes, growth, narrow
from regard.model.net import Net
from regard.nn.blocks.body import Body
from regard.nn.blocks.embedding import Embedding
from regard.nn.blocks.head import Head
from regard.nn.core.mixer import Mixer
from regard.nn.core.part import Part
from regard.nn.positions.position import Position


@dataclasses.dataclass(frozen=True)
class ParameterInfo:
    """Facts about a parameter besides its shape, for an initializer."""

    name: str
    width: int
    layers: int
    head_width: int
    """Head width of the mixer it belongs to; 0 elsewhere."""


@dataclasses.dataclass(frozen=True)
class Distribution:
    """A distribution around zero: normal with this deviation, or uniform up to this bound."""

    kind: Literal["normal", "uniform"]
    scale: float

    def fill(self, parameter: Tensor, factor: float = 1.0) -> None:
        """Draw all values of a parameter, `factor` times as large."""
        if self.kind == "normal":
            nn.init.normal_(parameter, std=self.scale * factor)
        else:
            nn.init.uniform_(parameter, -self.scale * factor, self.scale * factor)


Rule = Literal["scheme", "norm", "zero", "own"]
"""Origin of a parameter's values: the scheme; a norm, by itself; zero, a bias; the module of a plugin, by itself."""
NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.modules.batchnorm._NormBase)
"""The modules that normalize; they are made with scale one and shift zero."""
BASES = frozenset({Part, Mixer, Body, Embedding, Head, Position})
"""Classes that say what a part is, and have no weights: what extends only these is not Regard's."""
MAX_NAMED = 4
"""Maximum number of parameters that are named."""

Shape = tuple[int, ...]
Initializer = Callable[[Shape, ParameterInfo], Distribution]


def initialize(net: Net, scheme: str) -> None:
    """Initialize parameters in place, each by its rule; then parts adjust their own.

    What a plugin's module leaves unset (NaN, see `build`) is drawn by the scheme.
    """
    if scheme not in SCHEMES:
        raise UnknownName("initialization", scheme, SCHEMES)
    if all(parameter.is_meta for parameter in net.parameters()):  # an outline: shapes, and no numbers to set
        return
    layers = sum(1 for name, _ in net.named_modules() if name.split(".")[-2:-1] == ["blocks"])
    spec = net.spec if net.spec.mup_base is None else narrow(net.spec)
    width, embeds = spec.width, {"embed": spec.embed, "source": spec.source}
    widths = {side: embed.leaves(width) for side, embed in embeds.items() if embed is not None}
    shapes = {} if net.spec.mup_base is None else base_shapes(net.spec)
    rules = find_rules(net)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if rules[name] == "zero":
                parameter.zero_()
            elif rules[name] == "scheme" or bool(parameter.isnan().any()):  # a plugin's module left it unset
                shape = tuple(parameter.shape)
                base = shapes.get(name, shape)
                head_width = _head_width(net, name) * width // net.spec.width
                at = ParameterInfo(name, widths.get(name.split(".")[0], width), max(layers, 1), head_width)
                SCHEMES[scheme](base, at).fill(parameter, growth(shape, base) ** -0.5)
        for part in net.modules():
            if isinstance(part, Part):
                part.initialize()


def find_rules(net: Net) -> dict[str, Rule]:
    """Return what sets each parameter, by its name."""
    return {name: _find_rule(net, name, everything=net.spec.init_plugins) for name, _ in net.named_parameters()}


def describe_rules(net: Net) -> str:
    """Say in one line how many parameters each rule sets, and which ones keep what a plugin gave them."""
    rules = find_rules(net)
    names: dict[Rule, list[str]] = {rule: [n for n, own in rules.items() if own == rule] for rule in get_args(Rule)}
    counts = {rule: len(own) for rule, own in names.items()}
    said = f"initial weights: {counts['scheme']} by {net.spec.init}, {counts['zero']} biases zero"
    said += f", {counts['norm']} of norms as made"
    if own := names["own"]:
        more = ", …" if len(own) > MAX_NAMED else ""
        said += f"; {len(own)} of plugins keep their own ({', '.join(own[:MAX_NAMED])}{more})"
    return said


def _find_rule(net: Net, name: str, *, everything: bool) -> Rule:
    path = name.split(".")[:-1]
    modules = [net.get_submodule(".".join(path[:i])) for i in range(len(path) + 1)]
    if isinstance(modules[-1], NORMS):
        return "norm"
    makers = [type(module) for module in modules if not _is_in(type(module), "torch")]
    if not everything and not _is_ours(makers[-1]):
        return "own"
    return "zero" if name.endswith("bias") else "scheme"


def _is_ours(maker: type) -> bool:
    """True if a class is Regard's, or extends one that has weights."""
    ours = (each for each in maker.__mro__ if _is_in(each, "regard"))
    return _is_in(maker, "regard") or any(each not in BASES for each in ours)


def _is_in(maker: type, package: str) -> bool:
    return maker.__module__.partition(".")[0] == package


def _is_table(name: str) -> bool:
    """True if it is a lookup table: an embedding, positions, or an untied output projection."""
    return ".position." in name or name.split(".")[0] in ("embed", "source") or name == "head.weight"


def _head_width(net: nn.Module, name: str) -> int:
    """Return the head width of the mixer that a weight such as `….mix.q.weight` belongs to."""
    return getattr(net.get_submodule(".".join(name.split(".")[:-2])), "head_width", 0)


def _xavier(shape: Shape, at: ParameterInfo) -> Distribution:
    if len(shape) < 2 or (_is_table(at.name) and shape[-1] == at.width):
        return Distribution("normal", at.width**-0.5)
    inner = math.prod(shape[2:])
    return Distribution("uniform", math.sqrt(3.0) * math.sqrt(2.0 / float((shape[0] + shape[1]) * inner)))


def _normal(shape: Shape, at: ParameterInfo) -> Distribution:
    return Distribution("normal", 0.02)


def _memn2n(shape: Shape, at: ParameterInfo) -> Distribution:
    return Distribution("normal", 0.1)


def _uniform(shape: Shape, at: ParameterInfo) -> Distribution:
    return Distribution("uniform", 0.08)


def _convs2s(shape: Shape, at: ParameterInfo) -> Distribution:
    lookup = _is_table(at.name) and at.name != "head.weight"
    return Distribution("normal", 0.1 if lookup or len(shape) < 2 else shape[-1] ** -0.5)


def _neural_gpu(shape: Shape, at: ParameterInfo) -> Distribution:
    lookup = _is_table(at.name) and at.name != "head.weight"
    return Distribution("uniform", 1.7 if lookup or len(shape) < 2 else 1.8 * math.sqrt(3 / math.prod(shape[1:])))


def _gpt2(shape: Shape, at: ParameterInfo) -> Distribution:
    feeds_stream = at.name.endswith((".out.weight", ".down.weight"))
    return Distribution("normal", 0.02 / math.sqrt(2 * at.layers) if feeds_stream else 0.02)


def _t5(shape: Shape, at: ParameterInfo) -> Distribution:
    """An untied output projection is initialized like the embedding, as in `transformers`."""
    if at.name in ("embed.weight", "source.weight", "head.weight"):
        std = 1.0
    elif len(shape) < 2 or ".position." in at.name:
        std = at.width**-0.5
    else:
        std = math.prod(shape[1:]) ** -0.5
    if at.name.endswith(".q.weight") and at.head_width:
        std *= at.head_width**-0.5
    return Distribution("normal", std)


SCHEMES: dict[str, Initializer] = {
    "xavier": _xavier, "normal": _normal, "uniform": _uniform, "convs2s": _convs2s, "memn2n": _memn2n,
    "neural_gpu": _neural_gpu, "gpt2": _gpt2, "t5": _t5,
}  # fmt: skip
