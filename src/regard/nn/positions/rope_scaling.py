"""RoPE scaling: rotary angles for longer texts.

A model trained on short texts never saw the angles of later positions. Slowing the rotation down keeps them in the known range.

linear   slows every frequency down alike                                         Chen et al. 2023
llama3   slows only frequencies that never completed a turn in training           Llama 3.1 (Dubey et al. 2024)
yarn     the same with a ramp over the frequencies, and sharper attention         Peng et al. 2023

frequency     high ────────────────────────▶ low
slowed down   not at all    ·  more and more  ·    by `factor`
"""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from regard.errors import SpecError
from regard.registry import Registry
from regard.spec import Count, Spec, spec

ROPE_SCALINGS: Registry[type[RopeScalingSpec]] = Registry("rope_scaling")
Positive = Annotated[float, Field(gt=0)]
Factor = Annotated[float, Field(ge=1)]


class RopeScalingSpec(Spec):
    """Growth of rotary angles that is slower than in training."""

    registry = ROPE_SCALINGS

    @property
    def qk_factor(self) -> float:
        """Factor that queries and keys are multiplied by."""
        return 1.0

    def scale_rates(self, rates: Tensor, base: float) -> Tensor:
        """Scale the angle per position of every frequency; `rates` are those of training, highest first."""
        raise NotImplementedError


@ROPE_SCALINGS.add
@spec
class LinearScaling(RopeScalingSpec):
    """Every position gets the angle of the position `factor` times nearer."""

    factor: Factor
    kind = "linear"

    def scale_rates(self, rates: Tensor, base: float) -> Tensor:
        return rates / self.factor


@ROPE_SCALINGS.add
@spec
class Llama3Scaling(RopeScalingSpec):
    """Frequencies with fewer than `low_freq_factor` turns in `original_length` positions rotate `factor` times slower.

    Those with more than `high_freq_factor` turns are unchanged; those in between are interpolated.
    """

    factor: Factor
    original_length: Count
    low_freq_factor: Positive = 1.0
    high_freq_factor: Positive = 4.0
    kind = "llama3"

    def __post_init__(self) -> None:
        if self.high_freq_factor <= self.low_freq_factor:
            raise SpecError(
                f"high_freq_factor should be above low_freq_factor={self.low_freq_factor}, got {self.high_freq_factor}"
            )

    def scale_rates(self, rates: Tensor, base: float) -> Tensor:
        turns = self.original_length * rates / (2 * math.pi)
        kept = ((turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)).clamp(0, 1)
        return kept * rates + (1 - kept) * rates / self.factor


@ROPE_SCALINGS.add
@spec
class YarnScaling(RopeScalingSpec):
    """Frequencies with fewer than `beta_slow` turns in `original_length` positions rotate `factor` times slower.

    Those with more than `beta_fast` turns are unchanged, with a linear ramp in between. `attention_factor` multiplies queries
    and keys; it defaults to 1 + ln(factor) / 10. `truncate` rounds the ends of the ramp outwards, as the authors' code does.
    """

    factor: Factor
    original_length: Count
    beta_fast: Positive = 32.0
    beta_slow: Positive = 1.0
    attention_factor: Positive | None = None
    truncate: bool = True
    kind = "yarn"

    def __post_init__(self) -> None:
        if self.beta_fast <= self.beta_slow:
            raise SpecError(f"beta_fast should be above beta_slow={self.beta_slow}, got {self.beta_fast}")

    @property
    def qk_factor(self) -> float:
        return 1 + math.log(self.factor) / 10 if self.attention_factor is None else self.attention_factor

    def scale_rates(self, rates: Tensor, base: float) -> Tensor:
        width = 2 * len(rates)
        first, last = (
            width * math.log(self.original_length / (turns * 2 * math.pi)) / (2 * math.log(base))
            for turns in (self.beta_fast, self.beta_slow)
        )
        if self.truncate:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, width - 1)
        index = torch.arange(len(rates), device=rates.device, dtype=rates.dtype)
        kept = 1 - ((index - first) / (last - first or 1e-3)).clamp(0, 1)
        return kept * rates + (1 - kept) * rates / self.factor
