"""Curves from a training log.

A log is a list of objects with an `event`, most of them with a `step`:

    {"event": "train", "step": 100, "loss": 2.3, "rate": 0.001, "grad_norm": 1.1, "tokens_per_s": 8000, "seconds": 12.3}
    {"event": "valid", "step": 500, "loss": 1.9, "scores": {"exact": 0.93}, "seconds": 70.1}
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from regard.report.axis import LARGEST, Scale
from regard.report.chart import Point

Row = Mapping[str, object]


def quantity(value: object) -> float:
    """A number of the log: NaN for anything else (JSON has null for NaN), infinity if it is too large to draw."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan
    return float(value) if abs(value) < LARGEST or value != value else math.inf if value > 0 else -math.inf


def finite(values: Iterable[object]) -> list[float]:
    """Return the finite values."""
    return [v for v in map(quantity, values) if math.isfinite(v)]


def curve(log: Sequence[Row], event: str, key: str) -> list[Point]:
    """A quantity by step; the last value counts if a step was logged twice (by a resumed run)."""
    found = {quantity(row.get("step")): quantity(row[key]) for row in log if row.get("event") == event and key in row}
    return sorted((step, value) for step, value in found.items() if math.isfinite(step))


def score_curves(log: Sequence[Row]) -> dict[str, list[Point]]:
    """The curve of each score in the validation rows, by name; values that are not numbers are ignored."""
    rows = [(row.get("step"), row.get("scores")) for row in log if row.get("event") == "valid"]
    found = [(step, scores) for step, scores in rows if isinstance(scores, Mapping)]
    flat = [{**scores, "event": "valid", "step": step} for step, scores in found]
    names = dict.fromkeys(name for _, scores in found for name, value in scores.items() if finite([value]))
    return {name: points for name in names if (points := curve(flat, "valid", name))}


def choose_scale(points: Sequence[Point]) -> Scale:
    """Logarithmic for positive values that span two powers of ten."""
    sizes = finite(y for _, y in points)
    return "log" if sizes and min(sizes) > 0 and max(sizes) >= 100 * min(sizes) else "linear"
