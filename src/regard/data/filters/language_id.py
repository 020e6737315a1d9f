"""Which side of the corpus a text is like, by its letters three at a time: finds lines that are swapped or not translated.

A language identifier knows a fixed list of languages, and is a download. The corpus itself knows its own two, whatever they
are: how much likelier every trigram is on one side than on the other is counted in the first pairs (naive Bayes; Cavnar
and Trenkle 1994 on letters in a row), most of which are as they should be. What it cannot find is a third language.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import log
from statistics import median
from typing import Annotated

from pydantic import Field

from regard.data.filters.filter_spec import FILTERS, FilterSpec, Pair, PairFilter
from regard.spec import spec

CLEAR = 0.25
"""Nats a trigram that the sides should typically differ by: different languages do, two styles of one do not."""


class SideClassifier:
    """How much likelier every trigram is among sources than among targets, in nats; a letter more or less is no news."""

    def __init__(self, pairs: Iterable[Pair]) -> None:
        source, target = Counter[str](), Counter[str]()
        for one, other in pairs:
            source.update(_trigrams(one))
            target.update(_trigrams(other))
        known = source.keys() | target.keys()
        base = log((target.total() + len(known) or 1) / (source.total() + len(known) or 1))
        self._odds = {gram: log((source[gram] + 1) / (target[gram] + 1)) + base for gram in known}

    def evidence(self, text: str) -> tuple[float, float]:
        """That a text is a source (below 0: a target), in nats: a trigram, and in all."""
        grams = _trigrams(text)
        total = sum(self._odds.get(gram, 0.0) for gram in grams)
        return total / max(len(grams), 1), total


@FILTERS.add
@spec
class Language(FilterSpec):
    """No source is like a target, and no target like a source: half as much as they usually are, and surely.

    threshold    evidence in nats that a text needs to be called the other side's, so that names and short texts stay
    """

    threshold: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 10.0
    needs_sample = True

    def build(self, sample: Sequence[Pair]) -> PairFilter:
        one, other = (_typical_evidence(SideClassifier(sample[i::2]), sample[1 - i :: 2]) for i in (0, 1))
        source, target = (one[0] + other[0]) / 2, (one[1] + other[1]) / 2
        if min(source, -target) < CLEAR:
            return PairFilter(lambda source, target: True, "the two sides are too alike to tell them apart")
        sides = SideClassifier(sample)

        def keeps(one: str, other: str) -> bool:
            (each, total), (of_other, in_all) = sides.evidence(one), sides.evidence(other)
            swapped = each < target / 2 and total < -self.threshold
            return not swapped and not (of_other > source / 2 and in_all > self.threshold)

        return PairFilter(keeps, f"{source:.1f} and {-target:.1f} nats a trigram tell source from target")


def _typical_evidence(sides: SideClassifier, pairs: Sequence[Pair]) -> tuple[float, float]:
    """What sources and targets typically show that nothing was learned from; nothing where there are none."""
    if not pairs:
        return 0.0, 0.0
    source, target = ([sides.evidence(pair[i])[0] for pair in pairs] for i in (0, 1))
    return median(source), median(target)


def _trigrams(text: str) -> list[str]:
    text = f" {text.strip().casefold()} "
    return [text[i : i + 3] for i in range(len(text) - 2)]
