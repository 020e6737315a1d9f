"""The feed-forward sublayer, plain or gated.

Gated forms multiply two projections (Shazeer 2020).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import UnknownName
from regard.nn.core.context import Context
from regard.nn.core.mixer import Site
from regard.nn.core.state import State
from regard.nn.layers.dropout import Dropout
from regard.registry import Registry
from regard.spec import Count, Share, Spec, spec

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
}

FEEDS: Registry[type[FeedSpec]] = Registry("feed-forward")


class FeedSpec(Spec):
    """A sublayer that processes each position by itself."""

    registry = FEEDS

    def build(self, site: Site) -> nn.Module:
        raise NotImplementedError


@FEEDS.add(also=("mlp", "ffn"))
@spec
class FeedForward(FeedSpec):
    """`down(activation(up(x)))`, or with `gated` `down(activation(gate(x)) * up(x))`."""

    width: Count
    activation: str = "relu"
    gated: bool = False
    bias: bool = True
    dropout: Share = 0.0

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise UnknownName("activation", self.activation, ACTIVATIONS)

    def build(self, site: Site) -> nn.Module:
        return FeedForwardLayer(self, site)


class FeedForwardLayer(nn.Module):
    def __init__(self, spec: FeedForward, site: Site) -> None:
        super().__init__()
        self.up = nn.Linear(site.width, spec.width, bias=spec.bias)
        self.gate = nn.Linear(site.width, spec.width, bias=spec.bias) if spec.gated else None
        self.down = nn.Linear(spec.width, site.width, bias=spec.bias)
        self.activation = ACTIVATIONS[spec.activation]
        self.dropout = Dropout(spec.dropout)

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, None]:
        y = self.activation(self.up(x)) if self.gate is None else self.activation(self.gate(x)) * self.up(x)
        return self.down(self.dropout(y)), None
