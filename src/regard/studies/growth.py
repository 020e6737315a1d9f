"""Growth exponents: slopes on logarithmic axes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from regard.studies.student_t import t_quantile

DOUBLINGS = 3

Point = tuple[int, float]


@dataclasses.dataclass(frozen=True)
class Fit:
    """y ∝ n^exponent between `first` and `last`, with a 95 % interval if there are enough points."""

    exponent: float
    low: float | None
    high: float | None
    first: int
    last: int


def fit_exponent(points: Sequence[Point]) -> Fit | None:
    """The exponent over the last three doublings; None for fewer than two points, or values of zero."""
    if len(points) < 2:
        return None
    kept = sorted(points)
    kept = [(n, y) for n, y in kept if n * 2**DOUBLINGS >= kept[-1][0]]
    if len(kept) < 2 or min(y for _, y in kept) <= 0:
        return None
    xs, ys = [math.log2(n) for n, _ in kept], [math.log2(y) for _, y in kept]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((a - x) ** 2 for a in xs)
    slope = sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / spread
    free = len(kept) - 2
    off = sum((b - y - slope * (a - x)) ** 2 for a, b in zip(xs, ys, strict=True))
    wide = t_quantile(0.975, free) * math.sqrt(off / free / spread) if free else None
    low, high = (None, None) if wide is None else (slope - wide, slope + wide)
    return Fit(slope, low, high, kept[0][0], kept[-1][0])


def extrapolate(points: Sequence[Point], n: int, usual: float) -> float | None:
    """The expected value at `n`, from the last two points, or from one and the exponent `usual`."""
    if not points:
        return None
    (last, y), power = points[-1], usual
    if len(points) > 1 and min(points[-2][1], y) > 0:
        power = min(max(math.log(y / points[-2][1]) / math.log(last / points[-2][0]), 0.0), 3.0)
    return float(y * (n / last) ** power)


def find_crossing(ours: Sequence[Point], theirs: Sequence[Point]) -> float | None:
    """The length from which ours is below theirs, up to the longest common one; None if it never is."""
    other = dict(theirs)
    both = sorted((n, math.log(y / other[n])) for n, y in ours if n in other)
    if not both or both[-1][1] >= 0:
        return None
    for (m, before), (n, after) in zip(reversed(both[:-1]), reversed(both[1:]), strict=True):
        if before >= 0:
            return float(m * (n / m) ** (before / (before - after)))
    return float(both[0][0])
