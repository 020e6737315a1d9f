"""What a model costs: parameters, FLOPs and state a token, counted from the module itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from torch import nn

from regard.nn.blocks.head import Head
from regard.nn.core.mixer import Mixer


@dataclasses.dataclass(frozen=True)
class Cost:
    """Of one part or a whole model. FLOPs are multiply-adds ×2 of a forward pass, a token; training is three times that."""

    parameters: int
    flops: float
    state: float
    """Numbers the decoder remembers, a token read."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.parameters + other.parameters, self.flops + other.flops, self.state + other.state)


def cost(module: nn.Module, n: int, m: int | None = None) -> Cost:
    """Cost of a part among `n` tokens (and `m` in memory): what mixers and heads say, and the linear maps beside them.

    Of a whole model it is the cost a target token, a source of the same length included.
    """
    m = n if m is None else m
    parameters = sum(p.numel() for p in module.parameters())
    flops = state = 0.0
    for part in _outermost(module):
        if isinstance(part, Mixer):
            flops += part.flops(n, m)
            state += part.state_numbers(n) / n if part.site.causal else 0.0
        elif isinstance(part, Head):
            flops += part.flops(n)
        elif isinstance(part, nn.Linear | nn.Conv2d):  # a convolution makes a token of every patch
            flops += 2.0 * part.weight.numel()
    return Cost(parameters, flops, state)


def _outermost(module: nn.Module) -> Iterator[nn.Module]:
    """Every module in it but those inside a mixer or a head, which answer for them."""
    yield module
    if not isinstance(module, Mixer | Head):
        for child in module.children():
            yield from _outermost(child)
