"""What a model costs: parameters, FLOPs and state a token, counted from the module itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from torch import nn

from regard.model.model import Net
from regard.nn.mixer import Mixer


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
    """Cost of a part among `n` tokens (and `m` in memory): what its mixers say, and the linear maps beside them."""
    m = n if m is None else m
    parameters = sum(p.numel() for p in module.parameters())
    flops = state = 0.0
    for part in _outermost(module):
        if isinstance(part, Mixer):
            flops += part.flops(n, m)
            state += part.state_numbers(n) / n if part.site.causal else 0.0
        elif isinstance(part, nn.Linear):
            flops += 2.0 * part.weight.numel()
    return Cost(parameters, flops, state)


def model_cost(net: Net, n: int) -> Cost:
    """Cost of a whole model a target token, a source of the same length included."""
    readout = 2.0 * net.spec.embed.vocab * net.spec.out_width
    return cost(net, n) + Cost(0, readout, 0.0)


def _outermost(module: nn.Module) -> Iterator[nn.Module]:
    """Every module in it but those inside a mixer, which answers for them."""
    yield module
    if not isinstance(module, Mixer):
        for child in module.children():
            yield from _outermost(child)
