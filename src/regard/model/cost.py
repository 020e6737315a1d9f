"""Parameters, FLOPs and state of a model, per token."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from torch import nn

from regard.nn.blocks.body import Body
from regard.nn.blocks.head import Head
from regard.nn.core.mixer import Mixer


@dataclasses.dataclass(frozen=True)
class Cost:
    """Cost of a part or model. FLOPs (2 per multiply-add) are of a forward pass, per token; training takes three times that."""

    parameters: int
    flops: float
    state: float
    """Numbers the decoder stores per token."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.parameters + other.parameters, self.flops + other.flops, self.state + other.state)


def cost(module: nn.Module, n: int, m: int | None = None) -> Cost:
    """Return the cost of a part for `n` tokens (and `m` in memory): that of mixers and heads, and of other linear layers.

    For a whole model it is the cost per target token, including a source of the same length.
    """
    m = n if m is None else m
    parameters = sum(p.numel() for p in module.parameters())
    flops = state = 0.0
    for part in _outermost(module):
        if isinstance(part, Body):
            state += part.state_numbers(n) / n
            flops += part.flops(n, m) or 0.0
        elif isinstance(part, Mixer):
            flops += part.flops(n, m)
            state += part.state_numbers(n) / n if part.site.causal else 0.0
        elif isinstance(part, Head):
            flops += part.flops(n)
        elif isinstance(part, nn.Linear | nn.Conv2d):  # a convolution makes a token of every patch
            flops += 2.0 * part.weight.numel()
    return Cost(parameters, flops, state)


def _outermost(module: nn.Module) -> Iterator[nn.Module]:
    """Yield every module except those inside a mixer, a head or some body, which report their own cost."""
    yield module
    if not isinstance(module, Mixer | Head) and not (isinstance(module, Body) and module.flops(1, 1) is not None):
        for child in module.children():
            yield from _outermost(child)
