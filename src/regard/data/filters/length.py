"""Filters that compare lengths, or texts for equality."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Annotated, Literal

from pydantic import Field

from regard.data.filters.filter_spec import FILTERS, FilterSpec, Pair, PairFilter
from regard.errors import SpecError
from regard.spec import Count, spec


@FILTERS.add
@spec
class Length(FilterSpec):
    """Keep pairs whose texts both have `min` to `max` words; or characters, for languages without spaces between words."""

    max: Count = 200
    min: Count = 1
    unit: Literal["words", "characters"] = "words"

    def __post_init__(self) -> None:
        if self.min > self.max:
            raise SpecError(f"no text has at least {self.min} and at most {self.max} {self.unit}")

    def build(self, sample: Sequence[Pair]) -> PairFilter:
        def fits(text: str) -> bool:
            return self.min <= (len(text.split()) if self.unit == "words" else len(text)) <= self.max

        return PairFilter(lambda source, target: fits(source) and fits(target))


@FILTERS.add
@spec
class Ratio(FilterSpec):
    """Keep pairs of which no text is more than `max` times as long as expected from the other.

    The expected length is that of the other text times `typical`, the characters of target for one character of source
    (default: the median of the corpus). Pairs whose texts both have at most `exempt_length` characters are always kept: a yes
    may be long in one language and short in another.
    """

    max: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 3.0
    typical: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    exempt_length: Annotated[int, Field(ge=0)] = 20
    needs_sample = True

    def build(self, sample: Sequence[Pair]) -> PairFilter:
        found = [len(target) / len(source) for source, target in sample if source and target]
        typical = self.typical or (median(found) if found else 1.0)

        def keeps(source: str, target: str) -> bool:
            if len(source) <= self.exempt_length and len(target) <= self.exempt_length:
                return True
            expected = typical * len(source)
            return len(target) <= self.max * expected and expected <= self.max * len(target)

        return PairFilter(keeps, f"{typical:.2f} characters of target for one of source")


@FILTERS.add
@spec
class Identity(FilterSpec):
    """Drop pairs whose target is the source again, apart from case and surrounding spaces."""

    def build(self, sample: Sequence[Pair]) -> PairFilter:
        return PairFilter(lambda source, target: source.strip().casefold() != target.strip().casefold())
