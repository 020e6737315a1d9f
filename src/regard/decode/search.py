"""Decoding settings: search, sampling and length limits."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from regard.errors import SpecError
from regard.spec import Count, Spec, spec

MAX_TOKENS = 1_000_000
"""Upper bound of every length setting: model folders come from anywhere, and so do the settings in them."""


@spec
class Search(Spec):
    """Search for outputs: `sample` draws tokens; otherwise `beam` 1 is greedy search, and more is beam search."""

    beam: Annotated[int, Field(ge=1, le=1024)] = 4
    length_penalty: Literal["gnmt", "power", "none"] = "gnmt"
    """Divisor of log P in scores. gnmt: ((5 + |Y|) / 6)^alpha (Wu et al. 2016); power: |Y|^alpha; none: 1."""
    alpha: Annotated[float, Field(ge=-10, le=10)] = 0.6
    n_best: Count = 1
    max_extra: Annotated[int, Field(ge=0, le=MAX_TOKENS)] = 50
    """Maximum number of tokens beyond the length of the source."""
    max_length: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | None = None
    """Maximum number of tokens in all."""
    sample: bool = False
    temperature: Annotated[float, Field(ge=0.001, le=1000)] = 1.0
    top_k: Annotated[int, Field(ge=0, lt=1 << 31)] = 0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    min_p: Annotated[float, Field(ge=0, lt=1)] = 0.0
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)] = 1
    repetition_guard: bool = True
    """Encoder-decoder models: forbid tokens that continue a repetition already longer than the source."""

    def __post_init__(self) -> None:
        if self.n_best > (1 if self.sample else self.beam):
            raise SpecError(
                f"n_best={self.n_best} needs a beam of at least as many, got beam={self.beam}, sample={self.sample}"
            )

    def divisor(self, length: int) -> float:
        """Return the divisor of the log-probability of an output of `length` tokens (end mark included)."""
        if self.length_penalty == "gnmt":
            return math.pow((5 + length) / 6, self.alpha)
        return math.pow(length, self.alpha) if self.length_penalty == "power" else 1.0

    def limit(self, source: int) -> int:
        """Maximum number of tokens (end mark included) for a source of `source` tokens."""
        most = source + self.max_extra
        return max(1, most if self.max_length is None else min(most, self.max_length))
