"""Rotary angles stretched to texts longer than those of training: a model turns more slowly, and meets no angle it never saw.

linear   every wave alike                                                Chen et al. 2023
llama3   slow waves only: those that never came round in training        Llama 3.1 (Dubey et al. 2024)
yarn     as that, with a ramp over the waves; attention made sharper     Peng et al. 2023

wave          fast ────────────────────────▶ slow
slowed down   not at all    ·  more and more  ·    `factor` times
"""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from regard.errors import SpecError
from regard.registry import Table
from regard.spec import Count, Spec, spec

STRETCHES: Table[type[StretchSpec]] = Table("stretch")
Positive = Annotated[float, Field(gt=0)]
Factor = Annotated[float, Field(ge=1)]


class StretchSpec(Spec):
    """How rotary angles grow more slowly than in training."""

    table = STRETCHES

    @property
    def gain(self) -> float:
        """What queries and keys are multiplied by."""
        return 1.0

    def slowed(self, rates: Tensor, base: float) -> Tensor:
        """The angle a place of every wave, the fastest first, from those of training."""
        raise NotImplementedError


@spec
class Linear(StretchSpec):
    """Every angle is that of a place `factor` times nearer."""

    factor: Factor

    def slowed(self, rates: Tensor, base: float) -> Tensor:
        return rates / self.factor


@spec
class Llama3(StretchSpec):
    """Waves that come round fewer than `low` times in `length` places turn `factor` times slower, those that do so over
    `high` times as ever, and those between a mixture.
    """

    factor: Factor
    length: Count
    low: Positive = 1.0
    high: Positive = 4.0
    kind = "llama3"

    def __post_init__(self) -> None:
        if self.high <= self.low:
            raise SpecError(f"high should be above low={self.low}, got {self.high}")

    def slowed(self, rates: Tensor, base: float) -> Tensor:
        rounds = self.length * rates / (2 * math.pi)
        kept = ((rounds - self.low) / (self.high - self.low)).clamp(0, 1)
        return kept * rates + (1 - kept) * rates / self.factor


@spec
class Yarn(StretchSpec):
    """Waves that come round over `fast` times in `length` places turn as ever, those that do so fewer than `slow` times
    `factor` times slower, and from wave to wave between more so. `strength` multiplies queries and keys: 1 + ln(factor) / 10
    unless given. The bounds are `whole` waves in the authors' code.
    """

    factor: Factor
    length: Count
    fast: Positive = 32.0
    slow: Positive = 1.0
    strength: Positive | None = None
    whole: bool = True

    def __post_init__(self) -> None:
        if self.fast <= self.slow:
            raise SpecError(f"fast should be above slow={self.slow}, got {self.fast}")

    @property
    def gain(self) -> float:
        return 1 + math.log(self.factor) / 10 if self.strength is None else self.strength

    def slowed(self, rates: Tensor, base: float) -> Tensor:
        width = 2 * len(rates)
        first, last = (
            width * math.log(self.length / (rounds * 2 * math.pi)) / (2 * math.log(base))
            for rounds in (self.fast, self.slow)
        )
        if self.whole:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, width - 1)
        wave = torch.arange(len(rates), device=rates.device, dtype=rates.dtype)
        kept = 1 - ((wave - first) / (last - first or 1e-3)).clamp(0, 1)
        return kept * rates + (1 - kept) * rates / self.factor


STRETCHES.add(Linear, Llama3, Yarn)
