"""Axes with ticks at round numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from regard.report.number import compact, unit

Scale = Literal["linear", "log"]
LARGEST = 1e100
"""Beyond this a number counts as infinite: differences of drawable numbers must not overflow."""


@dataclass(frozen=True)
class Axis:
    """The ends of an axis and its ticks, with their labels."""

    low: float
    high: float
    ticks: tuple[float, ...]
    labels: tuple[str, ...]
    scale: Scale = "linear"

    def at(self, value: float) -> float:
        """Place of a value: 0 at the low end, 1 at the high end."""
        if self.scale == "log":
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def is_drawable(value: float, scale: Scale = "linear") -> bool:
    """True if a value can be drawn on an axis of this scale."""
    return abs(value) < LARGEST and (scale == "linear" or value > 1 / LARGEST)


def axis(
    values: Sequence[float], *, scale: Scale = "linear", count: int = 5, snug: bool = False, zero: bool = False
) -> Axis:
    """An axis for drawable values with about `count` ticks; `snug` ends at the values instead of at ticks."""
    found = values or ([1.0, 10.0] if scale == "log" else [0.0, 1.0])
    whole = all(v == int(v) for v in found)
    low, high = min(found), max(found)
    if zero and scale == "linear":
        low, high = min(low, 0.0), max(high, 0.0)
    low, high = _widen(low, high, scale)
    places = _log_ticks(low, high, count) if scale == "log" else ticks(low, high, count, whole=whole)
    if not snug:
        low, high = min(low, places[0]), max(high, places[-1])
    inside = tuple(t for t in places if low <= t <= high)
    return Axis(low, high, inside, tuple(labels(inside)), scale)


def ticks(low: float, high: float, count: int = 5, *, whole: bool = False) -> list[float]:
    """Evenly spaced nice numbers, the first at or below `low`, the last at or above `high`."""
    rough = (high - low) / count
    power = math.floor(math.log10(rough))
    size = next((m for m in (1, 2, 5) if m * 10.0**power >= rough * (1 - 1e-9)), 10)
    if whole and power < 0:
        size, power = 1, 0
    gap = _scale(size, power)
    first, last = math.floor(low / gap + 1e-9), math.ceil(high / gap - 1e-9)
    return [_scale(i * size, power) for i in range(first, last + 1)]


def labels(values: Sequence[float]) -> list[str]:
    """The labels of an axis; evenly spaced ticks share their unit and number of decimals."""
    gaps = [b - a for a, b in pairwise(values)]
    texts = [compact(v) for v in values]
    if gaps and max(gaps) < 1.001 * min(gaps):
        largest = max(map(abs, values))
        scale, suffix = unit(largest)
        digits = max(0, -math.floor(math.log10(gaps[0] / scale) + 1e-9))
        if digits <= 4 and largest < 1e15:
            texts = [f"{v / scale:,.{digits}f}{suffix}" for v in values]
        elif len(set(texts)) < len(texts):  # closer together than three digits can tell
            texts = [f"{v:.15g}" for v in values]
    return ["0" if not v else t.replace("-", "−", 1) if v < 0 else t for v, t in zip(values, texts, strict=True)]


def _widen(low: float, high: float, scale: Scale) -> tuple[float, float]:
    """Move the ends apart if there is only one value."""
    if scale == "log":
        return (low / 2, high * 2) if high / low < 1 + 1e-9 else (low, high)
    if high - low > max(1e-9 * max(abs(low), abs(high)), 1 / LARGEST):
        return low, high
    room = abs(low) / 2 if abs(low) > 1 / LARGEST else 1.0
    return low - room, high + room


def _log_ticks(low: float, high: float, count: int) -> list[float]:
    """Powers of ten, with 2 and 5 between them where there is room; within a decade, evenly spaced numbers."""
    bottom, top = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    if high / low < 5:
        return [t for t in ticks(low, high, count) if t > 0]
    if top - bottom <= count / 2:
        fine = [_scale(m, p) for p in range(bottom, top + 1) for m in (1, 2, 5)]
        below = max(t for t in fine if t <= low * (1 + 1e-9))
        above = min(t for t in fine if t >= high * (1 - 1e-9))
        return [t for t in fine if below <= t <= above]
    stride = math.ceil((top - bottom) / count)
    return [_scale(1, p) for p in range(bottom, top + 1, stride)]


def _scale(count: int, power: int) -> float:
    """`count` times a power of ten, rounded once: 6 / 10 is 0.6, where 3 * 0.2 is not."""
    return count * 10.0**power if power >= 0 else count / 10.0**-power
