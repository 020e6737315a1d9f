"""What a model costs: parameters, FLOPs and state a token, counted from the module itself."""

from __future__ import annotations

import dataclasses

from torch import nn

from regard.model.model import Net
from regard.nn.mixer import Mixer


@dataclasses.dataclass(frozen=True)
class Cost:
    """Of one part or a whole model. FLOPs are multiply-adds ×2 of a forward pass, a token; training is three times that."""

    parameters: int
    flops: float
    state: float
    """Numbers a token adds to the decoder's state."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.parameters + other.parameters, self.flops + other.flops, self.state + other.state)


def cost(module: nn.Module, n: int, m: int | None = None) -> Cost:
    """Cost of a part among `n` tokens (and `m` in memory): its linear maps, and what its mixers do beside them."""
    m = n if m is None else m
    parameters = sum(p.numel() for p in module.parameters())
    flops = state = 0.0
    for part in module.modules():
        if isinstance(part, nn.Linear):
            flops += 2.0 * part.weight.numel()
        elif isinstance(part, Mixer):
            flops += part.flops(n, m)
            state += part.state_numbers()
    return Cost(parameters, flops, state)


def model_cost(net: Net, n: int) -> Cost:
    """Cost of a whole model a target token, a source of the same length included."""
    readout = 2.0 * net.embed.weight.numel()
    return cost(net, n) + Cost(0, readout, 0.0)
