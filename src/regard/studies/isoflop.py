"""The best size of a model for a given number of FLOPs.

Hoffmann et al. 2022, approach 2: models of several sizes are trained with the same FLOPs. A parabola through their losses, over
the logarithm of the parameters, has its minimum at the best size; over several budgets that size grows as C^a.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from regard.studies.scaling_law import RunPoint

Floats = NDArray[np.float64]
SAMPLES = 200
LEAST = 4
"""Minimum number of model sizes for a parabola: with one more than it has coefficients, there are residuals to resample."""


@dataclasses.dataclass(frozen=True)
class BestSize:
    """The best number of parameters for a budget of FLOPs, and its loss."""

    flops: float
    parameters: float
    loss: float


@dataclasses.dataclass(frozen=True)
class IsoFlops:
    """The best size of every budget that has one, and the exponent a of C^a with its 95 % interval, if two have."""

    best: Sequence[BestSize]
    exponent: float | None
    interval: tuple[float, float] | None
    skipped: Mapping[float, str]
    """Budgets without a best size, and why."""

    def plain(self) -> dict[str, object]:
        return {
            "best": [dataclasses.asdict(each) for each in self.best],
            "exponent": self.exponent,
            "interval": None if self.interval is None else list(self.interval),
            "skipped": {f"{flops:.3g}": why for flops, why in self.skipped.items()},
        }


def fit_isoflops(budgets: Mapping[float, Sequence[RunPoint]], *, samples: int = SAMPLES, seed: int = 1) -> IsoFlops:
    """Fit a parabola to the runs of every budget, and a power of the FLOPs to their minima."""
    draw = np.random.Generator(np.random.PCG64(seed))
    best, again, skipped = list[BestSize](), list[list[float]](), dict[float, str]()
    for flops, points in sorted(budgets.items()):
        x, y = np.log([p.parameters for p in points]), np.array([p.loss for p in points])
        if len({*x}) < LEAST:
            skipped[flops] = f"{len({*x})} sizes, and a parabola needs {LEAST}"
            continue
        found = _minimum(x, y)
        if found is None:
            skipped[flops] = "the best size is outside of the sizes that were trained"
            continue
        best.append(BestSize(flops, float(np.exp(found[0])), found[1]))
        fitted = np.polyval(np.polyfit(x, y, 2), x)
        errors = (y - fitted) * np.sqrt(len(y) / (len(y) - 3))  # a fit hides some of the noise
        noisy = fitted + errors[draw.integers(len(y), size=(samples, len(y)))]
        drawn = [_minimum(x, row, anywhere=True) for row in noisy]
        again.append([np.nan if each is None else each[0] for each in drawn])
    if len(best) < 2:
        return IsoFlops(best, None, None, skipped)
    logs = np.log([each.flops for each in best])
    exponent = float(np.polyfit(logs, np.log([each.parameters for each in best]), 1)[0])
    rows = np.array(again).T
    slopes = [np.polyfit(logs, row, 1)[0] for row in rows[np.isfinite(rows).all(1)]]
    low, high = np.percentile(slopes, (2.5, 97.5)) if slopes else (np.nan, np.nan)
    return IsoFlops(best, exponent, (float(low), float(high)), skipped)


def _minimum(x: Floats, y: Floats, *, anywhere: bool = False) -> tuple[float, float] | None:
    """Return the lowest point of the parabola through the points; None if it is not among the points."""
    a, b, c = np.polyfit(x, y, 2)
    at = -b / (2 * a) if a > 0 else np.inf
    if not np.isfinite(at) or not (anywhere or x.min() <= at <= x.max()):
        return None
    return float(at), float(c - b * b / (4 * a))
