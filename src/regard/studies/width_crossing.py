"""Lengths and widths where recurrence beats attention.

Per token, attention over n tokens takes about 8d² + 4nd operations and a recurrent layer a multiple of d², so that from some
n / d on recurrence takes fewer. Its steps wait for one another, so it may take longer all the same: both crossings are found,
one by counting operations, one by measuring time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from regard.nn.core.mixer import Site
from regard.studies.contenders import CONTENDERS, FULL, Contender, Shape
from regard.studies.growth import find_crossing

RECURRENT = tuple(c.name for c in CONTENDERS.values() if c.causal and c.spec is not None)
WIDTHS = (64, 128, 256)
RATIOS = (0.5, 1, 2, 4, 8, 16, 32)
"""Lengths n that are measured, relative to the width d."""


@dataclasses.dataclass(frozen=True)
class WidthCrossing:
    """A recurrent layer of one width beside attention of the same width."""

    layer: str
    width: int
    cheaper_from: int
    """The length from which it takes fewer operations."""
    faster_from: float | None
    """The length from which it takes less time; None if it never does where both were measured."""
    times: dict[int, float]
    """Its time relative to attention's, by length."""

    @property
    def time_when_cheaper(self) -> float | None:
        """Its relative time at the first measured length where it takes fewer operations."""
        return next((ratio for n, ratio in sorted(self.times.items()) if n >= self.cheaper_from), None)


def list_lengths(width: int) -> tuple[int, ...]:
    """The lengths that are measured at a width."""
    return tuple(round(ratio * width) for ratio in RATIOS)


def count_operations(contender: Contender, shape: Shape) -> float:
    """Operations per token of a forward pass over `shape.n` tokens."""
    assert contender.spec is not None
    with torch.device("meta"):
        mixer = contender.spec(shape).build(Site("mix", shape.width, shape.n, causal=contender.causal))
    return mixer.flops(shape.n, shape.n)


def find_cheaper(contender: Contender, width: int) -> int:
    """The smallest length at which a recurrent layer takes fewer operations than attention."""
    own = count_operations(contender, Shape(1, width))
    short, long = (count_operations(CONTENDERS[FULL], Shape(n, width)) for n in (1, 2))
    return max(1, int((own - short) // (long - short)) + 2)  # attention's operations per token grow linearly with n


def cross(layer: str, width: int, own: Sequence[tuple[int, float]], full: Sequence[tuple[int, float]]) -> WidthCrossing:
    """Compare seconds by length of a recurrent layer with those of attention."""
    other = dict(full)
    times = {n: seconds / other[n] for n, seconds in own if n in other}
    return WidthCrossing(layer, width, find_cheaper(CONTENDERS[layer], width), find_crossing(own, full), times)
