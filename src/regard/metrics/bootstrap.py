"""Confidence intervals of scores over test items.

Bootstrap resampling (Efron 1979; for machine translation Koehn 2004): test items are drawn with replacement, as many as there
are, and every model is scored on the same draw. The spread of these scores tells how much a score depends on which items were
in the test set. It says something about these trained models, not about the methods by which they were trained: another seed
gives another model.

    from regard.metrics import METRICS
    from regard.metrics.bootstrap import bootstrap

    metric = METRICS["bleu"]
    found = bootstrap([metric.items(outputs, references) for outputs in all_outputs], higher=metric.higher)
    found.scores[0].score, found.scores[0].low, found.scores[0].high
    found.differences[0, 1].difference, found.differences[0, 1].not_better
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError, SpecError
from regard.metrics.items import Items

COVERAGE = (2.5, 97.5)
"""The percentiles that bound a 95 % interval."""
MAX_SAMPLES = 1_000_000
"""A thousand times as many as an interval needs."""


@dataclasses.dataclass(frozen=True)
class Interval:
    """A score on all items, and its 95 % interval."""

    score: float
    low: float
    high: float

    def plain(self) -> dict[str, float]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Difference:
    """The second model's score minus the first's, its 95 % interval, and how often the second was not better."""

    difference: float
    low: float
    high: float
    not_better: float
    """The share of samples in which the second model was not better: about the p-value of a one-sided test."""

    def plain(self) -> dict[str, float]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The scores of models, and the differences of all pairs of them, by their positions (first, second)."""

    scores: list[Interval]
    differences: dict[tuple[int, int], Difference]


def bootstrap(
    models: Sequence[Items],
    *,
    higher: bool = True,
    samples: int = 1000,
    seed: int = 1,
    paired: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Score any number of models on the same random selections of test items.

    models    for each model its results on the same items, in the same order (`Metric.items`, `loss_items`)
    higher    whether a higher score is better
    paired    false if the items of models differ, such as rows of different tokens: then each has its own selections, and
              differences vary more
    progress  is called with the number of samples done, and of all
    """
    check_samples(samples)
    sizes = {len(items) for items in models}
    if (paired and len(sizes) != 1) or 0 in sizes:
        raise DataError(f"models can be compared on the same test items, got {sorted(sizes)} of them")
    draw = np.random.Generator(np.random.PCG64(seed))
    table = np.empty((samples, len(models)))
    for i in range(samples):
        indices = draw.integers(0, len(models[0]), len(models[0]))
        own = (indices if paired else draw.integers(0, len(items), len(items)) for items in models)
        table[i] = [items.score(some) for items, some in zip(models, own, strict=True)]
        if progress is not None:
            progress(i + 1, samples)
    whole = [items.score() for items in models]
    scores = [Interval(score, *_interval(column)) for score, column in zip(whole, table.T, strict=True)]
    differences = {}
    for a, b in combinations(range(len(models)), 2):
        gaps = table[:, b] - table[:, a]
        better = gaps > 0 if higher else gaps < 0
        differences[a, b] = Difference(whole[b] - whole[a], *_interval(gaps), float(1 - better.mean()))
    return Comparison(scores, differences)


def check_samples(samples: int) -> None:
    """Refuse a bootstrap without samples, which would give no interval, and one that would never end."""
    if not 1 <= samples <= MAX_SAMPLES:
        said = samples if abs(samples) < 10**18 else "more digits than fit here"
        raise SpecError(f"samples should be 1 to {MAX_SAMPLES:,}, got {said}")


def _interval(values: NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.percentile(values, COVERAGE)
    return float(low), float(high)
