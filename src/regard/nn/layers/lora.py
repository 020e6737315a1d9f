"""LoRA: low-rank adapters beside frozen linear layers.

Hu et al. 2021.

    x ─┬─ weight, frozen ────────────────(+)─ y       y = (W + alpha / rank · up · down) x
       └─ dropout ─ down ─ up ─ · scale ──┘           up starts at zero, so the adapted model starts unchanged

`merge_adapters` adds the product to the weight, which gives the weights of a plain model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from regard.errors import SpecError
from regard.nn.layers.dropout import Dropout
from regard.spec import Count, Share, Spec, spec

BODIES = ("encoder.", "decoder.")
"""Places of adapted layers. A head is small and often new, so it is trained directly."""


@spec
class Lora(Spec):
    """Adapters of this `rank` on the linear layers in `targets`: a layer's name (`q`) or a pattern for its full path."""

    rank: Count = 8
    alpha: Annotated[float, Field(gt=0)] = 16.0
    targets: tuple[str, ...] = ("q", "v")
    dropout: Share = 0.0


class LoraLinear(nn.Linear):
    """A linear layer with an adapter; its own weight and bias keep their names."""

    def __init__(self, linear: nn.Linear, spec: Lora) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.down = nn.Parameter(linear.weight.new_empty(spec.rank, linear.in_features))
        self.up = nn.Parameter(linear.weight.new_zeros(linear.out_features, spec.rank))
        self.scale, self.dropout = spec.alpha / spec.rank, Dropout(spec.dropout)
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))  # as in the paper's code

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.scale * F.linear(F.linear(self.dropout(x), self.down), self.up)

    def merge(self) -> Tensor:
        """Return the weight of the equivalent plain layer."""
        return self.weight + self.scale * (self.up @ self.down)


def adapt(net: nn.Module, spec: Lora) -> list[str]:
    """Add adapters to the layers that the spec names; returns the names of the new parameters."""
    maps = {name: part for name, part in net.named_modules() if type(part) is nn.Linear and name.startswith(BODIES)}
    for pattern in spec.targets:
        if not _match(maps, [pattern]):
            there = ", ".join(dict.fromkeys(name.rpartition(".")[2] for name in maps)) or "none"
            raise SpecError(f"no linear layer of this model matches {pattern!r} (lora.targets); available: {there}")
    added = []
    for name in _match(maps, spec.targets):
        parent, _, leaf = name.rpartition(".")
        drops = leaf != "r"  # `r` reads distances, and all tiles must agree on them: no dropout
        setattr(
            net.get_submodule(parent), leaf, LoraLinear(maps[name], spec if drops else spec.replace("dropout", 0.0))
        )
        added += [f"{name}.down", f"{name}.up"]
    return added


@torch.no_grad()
def merge_adapters(net: nn.Module) -> dict[str, Tensor]:
    """Return the weights of the equivalent plain model, for a weights file."""
    out = dict(net.state_dict())
    for name, part in _find_adapters(net):
        del out[f"{name}.down"], out[f"{name}.up"]
        out[f"{name}.weight"] = part.merge()
    return out


def zero_adapters(net: nn.Module) -> dict[str, Tensor]:
    """Return adapter weights that add nothing, for use with merged weights."""
    return {f"{name}.up": torch.zeros_like(part.up) for name, part in _find_adapters(net)}


def _find_adapters(net: nn.Module) -> Iterator[tuple[str, LoraLinear]]:
    yield from ((name, part) for name, part in net.named_modules() if isinstance(part, LoraLinear))


def _match(names: dict[str, nn.Linear], patterns: Sequence[str]) -> list[str]:
    def fits(name: str, pattern: str) -> bool:
        return fnmatchcase(name, pattern) or fnmatchcase(name.rpartition(".")[2], pattern)

    return [name for name in names if any(fits(name, pattern) for pattern in patterns)]
