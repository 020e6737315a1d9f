"""From the results of cells to a verdict in words.

The first contender is the baseline. Every other one is compared with it over seeds and test items; "better" needs a difference
that stands against both, after correction for the number of contenders and of looks at the data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from regard.metrics.items import Items
from regard.studies.significance import (
    ALPHA,
    SAMPLES,
    VERDICT_SEEDS,
    Contrast,
    contrast,
    equivalence,
    excluded_above,
    holm,
    paired,
    resample_items,
    seeds_needed,
    welch,
)

Word = Literal["better", "worse", "no difference", "not shown", "preliminary", "no result"]


@dataclasses.dataclass(frozen=True)
class Sample:
    """One contender's results, a model per seed: its test items and score; `failed` seeds diverged or were refused."""

    name: str
    items: Sequence[Items]
    scores: Sequence[float]
    failed: Mapping[int, str] = dataclasses.field(default_factory=dict)
    marks: Sequence[str] = ()
    """A digest of all that validation and tests found, per seed."""

    def is_identical(self, other: Sample) -> bool:
        """Return whether every seed gave the same to the last bit."""
        return bool(self.marks) and list(self.marks) == list(other.marks)

    @property
    def mean(self) -> float:
        return float(np.mean(self.scores))

    @property
    def deviation(self) -> float | None:
        return float(np.std(self.scores, ddof=1)) if len(self.scores) > 1 else None

    def score(self, chosen: NDArray[np.int64] | None) -> float:
        """The score of a selection of items, averaged over seeds."""
        return float(np.mean([items.score(chosen) for items in self.items]))


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The verdict on one contender, relative to the baseline."""

    name: str
    word: Word
    sentence: str
    found: Contrast | None = None
    adjusted: float | None = None
    """The p-value after Holm's correction."""
    level: float = ALPHA
    """Level it was compared with, at this look."""
    further: int | None = None
    """The number of seeds that would probably decide it."""

    def plain(self) -> dict[str, object]:
        out: dict[str, object] = {"contender": self.name, "verdict": self.word, "sentence": self.sentence}
        if self.found is not None:
            low, high = self.found.both.interval()
            out |= {"difference": self.found.difference, "interval": [low, high], "p": self.adjusted}
            out |= {"p_seeds": self.found.seeds.p, "p_items": self.found.items and self.found.items.p}
            out |= {"p_both": self.found.both.p, "level": self.level, "seeds_needed": self.further}
        return out


@dataclasses.dataclass(frozen=True)
class Rules:
    """Rules of a verdict: declared before the data is seen."""

    metric: str
    higher: bool
    level: float = ALPHA
    """Share of the 5 % for false verdicts that this look may spend."""
    look: int = 1
    paired: bool = False
    delta: float | None = None
    """The largest difference that does not matter."""
    samples: int = SAMPLES


def judge(baseline: Sample, others: Sequence[Sample], rules: Rules) -> list[Verdict]:
    """A verdict for each contender."""
    found = [_contrast(baseline, other, rules) for other in others]
    there = [each for each in found if each is not None]
    adjusted = iter(holm([each.p for each in there]))
    same = iter(holm([equivalence(each.both, rules.delta) for each in there]) if rules.delta else [1.0] * len(there))
    out = []
    for other, each in zip(others, found, strict=True):
        if each is None:
            failed = other.failed or baseline.failed
            why = next(iter(failed.values()), "too few seeds: a comparison needs at least two")
            out.append(Verdict(other.name, "no result", f"{other.name}: no result; {why}"))
        else:
            out.append(_decide(baseline, other, each, next(adjusted), next(same), rules))
    return out


def _contrast(a: Sample, b: Sample, rules: Rules) -> Contrast | None:
    if min(len(a.scores), len(b.scores)) < 2 or a.failed or b.failed:
        return None
    over_seeds = (paired if rules.paired else welch)(a.scores, b.scores)
    if not a.items or not b.items:
        return contrast(over_seeds, None, None)
    count = len(a.items[0])
    over_items = resample_items(a.score, b.score, count, samples=rules.samples)
    return contrast(over_seeds, over_items, count)


def _decide(a: Sample, b: Sample, found: Contrast, p: float, same: float, rules: Rules) -> Verdict:
    seeds = min(len(a.scores), len(b.scores))
    low, high = found.both.interval()
    gap = f"{rules.metric} {found.difference:+.3g} (95 % interval {low:+.3g} … {high:+.3g})"
    by = f"p = {p:.2g}, level {rules.level:.2g}, {seeds} seeds" + (f", look {rules.look}" if rules.look > 1 else "")
    good = (found.difference > 0) == rules.higher
    shown, equal = p <= rules.level, same <= rules.level
    beyond = excluded_above(found.both)
    needed = None if shown or equal else seeds_needed(found, seeds, rules.level)
    more = "" if needed is None or needed <= seeds else f"; about {needed} seeds would decide it if it is real"
    if not shown and not equal and needed is None and found.difference:
        more = "; more seeds alone would not decide it: the test set is too small"
    word: Word
    if seeds < VERDICT_SEEDS:
        lean = ("better" if good else "worse") if shown else "no difference shown"
        word, text = "preliminary", f"preliminary, {lean}; a verdict needs {VERDICT_SEEDS} seeds"
    elif shown:
        word = "better" if good else "worse"
        text = f"{word} than {a.name}"
    elif equal:
        word, text = "no difference", f"no difference above {rules.delta:g} compared with {a.name}"
    else:
        word, text = "not shown", f"no difference from {a.name} shown; differences above {beyond:.3g} are excluded"
    if b.is_identical(a):
        text = f"identical to the baseline in every seed: the change is probably not switched on; {text}"
    return Verdict(b.name, word, f"{b.name}: {text}; {gap}; {by}{more}", found, p, rules.level, needed)
