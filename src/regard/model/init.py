"""Initialization schemes, by parameter name.

xavier   linear maps Xavier-uniform, embeddings and lone vectors N(0, 1/d), biases 0   (Vaswani et al., reference code)
normal   N(0, 0.02) everywhere, biases 0                                       (BERT, GPT-1)
gpt2     as normal; maps that feed the stream N(0, 0.02/√(2·layers))           (Radford et al. 2019)
uniform  U(−0.08, 0.08) everywhere, biases 0                                   (Sutskever et al. 2014)
convs2s  tables N(0, 0.1), maps N(0, 1/inputs), which the body adjusts, biases 0   (Gehring et al. 2017)
t5       tables of tokens N(0, 1), maps N(0, 1/inputs), queries N(0, 1/(d·e)), so that scores need no scale  (Raffel et al.)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.errors import UnknownName
from regard.model.net import Net
from regard.nn.core.part import Part


@dataclasses.dataclass(frozen=True)
class ParameterInfo:
    """What an initializer knows about a parameter besides its shape."""

    name: str
    width: int
    layers: int
    head_width: int
    """Of the mixer it belongs to; 0 elsewhere."""


Initializer = Callable[[Tensor, ParameterInfo], None]


def initialize(net: Net, scheme: str) -> None:
    """Initialize all parameters in place: norm weights one, biases zero, the rest by scheme; then parts adjust their own."""
    if scheme not in SCHEMES:
        raise UnknownName("initialization", scheme, SCHEMES)
    if all(parameter.is_meta for parameter in net.parameters()):  # an outline: shapes, and no numbers to set
        return
    layers = sum(1 for name, _ in net.named_modules() if name.split(".")[-2:-1] == ["blocks"])
    spec = net.spec
    width, embeds = spec.width, {"embed": spec.embed, "source": spec.source}
    widths = {side: embed.leaves(width) for side, embed in embeds.items() if embed is not None}
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if "norm" in name:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
            elif name.endswith("bias"):
                parameter.zero_()
            else:
                at = ParameterInfo(name, widths.get(name.split(".")[0], width), max(layers, 1), _head_width(net, name))
                SCHEMES[scheme](parameter, at)
        for part in net.modules():
            if isinstance(part, Part):
                part.initialize()


def _is_table(name: str) -> bool:
    """Whether it is a lookup table: an embedding, positions, or an untied output projection."""
    return ".position." in name or name.split(".")[0] in ("embed", "source") or name == "head.weight"


def _head_width(net: nn.Module, name: str) -> int:
    """Return the head width of the mixer that a weight such as `….mix.q.weight` belongs to."""
    return getattr(net.get_submodule(".".join(name.split(".")[:-2])), "head_width", 0)


def _xavier(parameter: Tensor, at: ParameterInfo) -> None:
    if parameter.dim() < 2 or (_is_table(at.name) and parameter.shape[-1] == at.width):
        nn.init.normal_(parameter, std=at.width**-0.5)
    else:
        nn.init.xavier_uniform_(parameter)


def _normal(parameter: Tensor, at: ParameterInfo) -> None:
    nn.init.normal_(parameter, std=0.02)


def _uniform(parameter: Tensor, at: ParameterInfo) -> None:
    nn.init.uniform_(parameter, -0.08, 0.08)


def _convs2s(parameter: Tensor, at: ParameterInfo) -> None:
    lookup = _is_table(at.name) and at.name != "head.weight"
    nn.init.normal_(parameter, std=0.1 if lookup or parameter.dim() < 2 else parameter.shape[-1] ** -0.5)


def _gpt2(parameter: Tensor, at: ParameterInfo) -> None:
    feeds_stream = at.name.endswith((".out.weight", ".down.weight"))
    nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * at.layers) if feeds_stream else 0.02)


def _t5(parameter: Tensor, at: ParameterInfo) -> None:
    """An untied output projection is initialized like the embedding, as in `transformers`."""
    if at.name in ("embed.weight", "source.weight", "head.weight"):
        std = 1.0
    elif parameter.dim() < 2 or ".position." in at.name:
        std = at.width**-0.5
    else:
        std = parameter[0].numel() ** -0.5
    if at.name.endswith(".q.weight") and at.head_width:
        std *= at.head_width**-0.5
    nn.init.normal_(parameter, std=std)


SCHEMES: dict[str, Initializer] = {
    "xavier": _xavier, "normal": _normal, "uniform": _uniform, "convs2s": _convs2s, "gpt2": _gpt2, "t5": _t5,
}  # fmt: skip
