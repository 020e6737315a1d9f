"""Tests of a difference between two ways to train.

A method is known by several trained models, one per seed, all tested on the same items. Two things are drawn at random, the
seeds and the test items, and a difference has to stand against both:

- **seeds**: Welch's t test over one score per seed, or the paired t test if pairing was declared beforehand;
- **items**: a paired bootstrap over test items, of scores averaged over seeds;
- **both at once**: a t test with the variances of the two added (degrees of freedom by Satterthwaite). The first two alone are
  not enough: each ignores the other's variance, and where both are large a chance difference passes both of them too often
  (`python -m bench.statistics` measures it).

The p-value of a comparison is the largest of the three. Comparisons with one baseline are corrected together (Holm 1979).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from regard.errors import SpecError
from regard.studies.student_t import t_cdf, t_power, t_quantile, t_two_sided

ALPHA = 0.05
"""The probability of a false verdict in a whole study, all contenders and all looks together."""
MIN_SEEDS, VERDICT_SEEDS = 2, 5
"""Fewest seeds with a variance; fewest seeds for a verdict."""
POWER = 0.8
"""The power that a forecast of further seeds aims at."""
MAX_SEEDS = 1000
SPENT_VERDICT, SPENT_PRELIMINARY = 0.8, 0.1
"""The share of what is left of ALPHA that a look may spend: one that can end in a verdict, and a preliminary one."""
SAMPLES = 2000
"""Bootstrap samples."""
CHUNK = 1 << 20
"""Items drawn at once."""

Scores = Sequence[float]


@dataclasses.dataclass(frozen=True)
class TTest:
    """A difference with its standard error, degrees of freedom and two-sided p-value."""

    difference: float
    error: float
    df: float
    p: float

    def interval(self, alpha: float = ALPHA) -> tuple[float, float]:
        """The confidence interval at level 1 − alpha."""
        if self.error == 0:
            return self.difference, self.difference
        reach = t_quantile(1 - alpha / 2, self.df) * self.error
        return self.difference - reach, self.difference + reach


@dataclasses.dataclass(frozen=True)
class Resampled:
    """A paired bootstrap over items: the difference, its standard error and two-sided p-value."""

    difference: float
    error: float
    p: float


@dataclasses.dataclass(frozen=True)
class Contrast:
    """One contender against the baseline, by seeds, by items, and by both."""

    seeds: TTest
    items: Resampled | None
    """None if the results have no items."""
    both: TTest

    @property
    def difference(self) -> float:
        return self.seeds.difference

    @property
    def p(self) -> float:
        """The largest of the p-values: a verdict needs all of them to be small."""
        return max(self.seeds.p, self.both.p, 0.0 if self.items is None else self.items.p)


def welch(a: Scores, b: Scores) -> TTest:
    """Welch's t test of mean(b) − mean(a), with unequal variances."""
    x, y = _at_least_two(a), _at_least_two(b)
    va, vb = x.var(ddof=1) / len(x), y.var(ddof=1) / len(y)
    df = _satterthwaite((va, len(x) - 1), (vb, len(y) - 1))
    return _t_test(float(y.mean() - x.mean()), math.sqrt(va + vb), df)


def paired(a: Scores, b: Scores) -> TTest:
    """The paired t test of mean(b − a): `a[i]` and `b[i]` are of the same seed."""
    if len(a) != len(b):
        raise SpecError(f"a paired test needs the same seeds on both sides, got {len(a)} and {len(b)}")
    gaps = _at_least_two(np.subtract(b, a))
    return _t_test(float(gaps.mean()), math.sqrt(gaps.var(ddof=1) / len(gaps)), len(gaps) - 1)


Selection = Callable[[NDArray[np.int64] | None], float]
"""The score of a selection of test items, averaged over the seeds of a method; of all items for None."""


def resample_items(a: Selection, b: Selection, count: int, *, samples: int = SAMPLES, seed: int = 1) -> Resampled:
    """The paired bootstrap of b − a over `count` test items: both sides are scored on the same draws.

    The p-value is twice the share of draws on the far side of zero, counting the observed one.
    """
    draw = np.random.Generator(np.random.PCG64(seed))
    drawn = (draw.integers(0, count, count) for _ in range(samples))
    gaps = np.array([b(chosen) - a(chosen) for chosen in drawn])
    return _resampled(b(None) - a(None), gaps)


def resample_means(gaps: NDArray[np.float64], *, samples: int = SAMPLES, seed: int = 1) -> Resampled:
    """Resample a score that is a mean over items: `gaps` (items,) are differences averaged over seeds."""
    draw = np.random.Generator(np.random.PCG64(seed))
    rows = max(1, CHUNK // len(gaps))
    sizes = [min(rows, samples - begin) for begin in range(0, samples, rows)]
    drawn = [gaps[draw.integers(0, len(gaps), (size, len(gaps)), np.int32)].mean(1) for size in sizes]
    return _resampled(float(gaps.mean()), np.concatenate(drawn))


def contrast(seeds: TTest, items: Resampled | None, count: int | None) -> Contrast:
    """Combine the tests over seeds and over `count` items."""
    if items is None or count is None:
        return Contrast(seeds, None, seeds)
    df = _satterthwaite((seeds.error**2, seeds.df), (items.error**2, max(count - 1, 1)))
    return Contrast(seeds, items, _t_test(seeds.difference, math.hypot(seeds.error, items.error), df))


def holm(ps: Sequence[float]) -> list[float]:
    """Adjusted p-values of several tests (Holm 1979): the chance of any false one stays below the level."""
    out, largest = [0.0] * len(ps), 0.0
    for rank, i in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[i]))
        out[i] = largest
    return out


def equivalence(test: TTest, delta: float) -> float:
    """The p-value of two one-sided tests (Schuirmann 1987): small if the difference is surely within ±delta."""
    if not delta > 0:
        raise SpecError(f"delta should be positive, in units of the metric; got {delta}")
    if test.error == 0:
        return float(abs(test.difference) >= delta)
    above = t_cdf((test.difference - delta) / test.error, test.df)
    below = 1 - t_cdf((test.difference + delta) / test.error, test.df)
    return max(above, below)


def excluded_above(test: TTest, alpha: float = ALPHA) -> float:
    """The smallest delta for which `equivalence` is shown."""
    if test.error == 0:
        return abs(test.difference)
    return abs(test.difference) + t_quantile(1 - alpha, test.df) * test.error


def spend_alpha(looks: Sequence[int], alpha: float = ALPHA) -> float:
    """The level of the last of these looks, each given by its number of seeds.

    Each look may use a share of what the earlier ones left, so that all of them together never use more than `alpha`: 4 %
    for a first look with five seeds or more, 0.8 % for a second. A preliminary look takes a tenth.
    """
    left, level = alpha, 0.0
    for seeds in looks:
        level = left * (SPENT_VERDICT if seeds >= VERDICT_SEEDS else SPENT_PRELIMINARY)
        left -= level
    return level


def seeds_needed(found: Contrast, seeds: int, alpha: float = ALPHA, power: float = POWER) -> int | None:
    """Seeds per contender that would show this difference with this power, if it is real; None if no number would.

    More seeds shrink the variance of seeds only: that of the items stays.
    """
    gap, item = abs(found.difference), 0.0 if found.items is None else found.items.error
    if gap == 0:
        return None
    one = found.seeds.error * math.sqrt(seeds)

    def decides(n: int) -> bool:
        error = math.hypot(one / math.sqrt(n), item)
        df = found.seeds.df * (n - 1) / max(seeds - 1, 1)
        return error == 0 or t_power(gap / error, max(df, 1.0), alpha) >= power

    if not decides(MAX_SEEDS):
        return None
    low, high = MIN_SEEDS, MAX_SEEDS
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle + 1, high)
    return max(low, VERDICT_SEEDS)


def _resampled(difference: float, gaps: NDArray[np.float64]) -> Resampled:
    side = min(int((gaps <= 0).sum()), int((gaps >= 0).sum()))
    return Resampled(difference, float(gaps.std()), min(1.0, 2 * (side + 1) / (len(gaps) + 1)))


def _t_test(difference: float, error: float, df: float) -> TTest:
    if error == 0:  # every seed gave the same score
        return TTest(difference, 0.0, max(df, 1.0), float(difference == 0))
    return TTest(difference, error, df, t_two_sided(difference / error, df))


def _satterthwaite(*parts: tuple[float, float]) -> float:
    """Degrees of freedom of a sum of variances, each with its own."""
    total = sum(variance for variance, _ in parts)
    if total == 0:
        return min(df for _, df in parts)
    return float(1 / sum((variance / total) ** 2 / df for variance, df in parts))


def _at_least_two(values: Scores | NDArray[np.float64]) -> NDArray[np.float64]:
    if len(values) < MIN_SEEDS:
        raise SpecError(f"a variance over seeds needs at least {MIN_SEEDS} of them, got {len(values)}")
    return np.asarray(values, np.float64)
