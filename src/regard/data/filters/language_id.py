"""Filter of texts in the language of the other side.

A language identifier knows a fixed list of languages and has to be downloaded. The corpus itself shows its two languages: the
log odds of every character trigram between the sides are counted in the first pairs, most of which are correct (naive Bayes;
character n-grams: Cavnar and Trenkle 1994). This finds swapped and untranslated lines, but not a third language.
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
"""Minimum typical evidence in nats per trigram: two languages reach it, two styles of one language do not."""


class SideClassifier:
    """Log odds of every trigram being from a source rather than a target, in nats."""

    def __init__(self, pairs: Iterable[Pair]) -> None:
        source, target = Counter[str](), Counter[str]()
        for one, other in pairs:
            source.update(_trigrams(one))
            target.update(_trigrams(other))
        known = source.keys() | target.keys()
        base = log((target.total() + len(known) or 1) / (source.total() + len(known) or 1))
        self._odds = {gram: log((source[gram] + 1) / (target[gram] + 1)) + base for gram in known}

    def evidence(self, text: str) -> tuple[float, float]:
        """Return the evidence that a text is a source (below 0: a target) in nats, per trigram and in total."""
        grams = _trigrams(text)
        total = sum(self._odds.get(gram, 0.0) for gram in grams)
        return total / max(len(grams), 1), total


@FILTERS.add
@spec
class Language(FilterSpec):
    """Drop pairs with a text that is more like the other side: by half the typical evidence per trigram, and by `threshold`.

    threshold    evidence in nats that a text needs in total, so that names and short texts are kept
    """

    threshold: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 10.0
    needs_sample = True

    def build(self, sample: Sequence[Pair]) -> PairFilter:
        one, other = (_typical_evidence(SideClassifier(sample[i::2]), sample[1 - i :: 2]) for i in (0, 1))
        source, target = (one[0] + other[0]) / 2, (one[1] + other[1]) / 2
        if min(source, -target) < CLEAR:
            return PairFilter(lambda source, target: True, "the two sides are too similar to distinguish")
        sides = SideClassifier(sample)

        def keeps(one: str, other: str) -> bool:
            (each, total), (of_other, in_all) = sides.evidence(one), sides.evidence(other)
            swapped = each < target / 2 and total < -self.threshold
            return not swapped and not (of_other > source / 2 and in_all > self.threshold)

        return PairFilter(keeps, f"{source:.1f} and {-target:.1f} nats per trigram distinguish source and target")


def _typical_evidence(sides: SideClassifier, pairs: Sequence[Pair]) -> tuple[float, float]:
    """Return the median evidence of held-out sources and of held-out targets; 0 if there are none."""
    if not pairs:
        return 0.0, 0.0
    source, target = ([sides.evidence(pair[i])[0] for pair in pairs] for i in (0, 1))
    return median(source), median(target)


def _trigrams(text: str) -> list[str]:
    text = f" {text.strip().casefold()} "
    return [text[i : i + 3] for i in range(len(text) - 2)]
