"""Calibration: whether probabilities mean what they say.

Of predictions made with a confidence of 80 %, 80 % should be right. Expected calibration error (Guo et al. 2017) is the mean
gap between confidence and accuracy over bins of confidence; the Brier score (1950) is the mean squared distance between the
predicted distribution and the truth. Both are made of sums over items, so they have bootstrap intervals like any other
score.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BINS = 15
"""Bins of confidence, of equal width."""
CALIBRATION = ("ece", "brier")
"""The metrics that need the whole predicted distribution."""


def bin_predictions(
    confidence: NDArray[np.float64], correct: NDArray[np.bool_], bins: int = BINS
) -> NDArray[np.float64]:
    """For each bin the number of predictions, their summed confidence, and how many are correct: (3 · bins,)."""
    where = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    columns = (np.ones_like(confidence), confidence, correct.astype(np.float64))
    return np.concatenate([np.bincount(where, weights, minlength=bins) for weights in columns])


def calibration_error(sums: NDArray[np.float64]) -> float:
    """Expected calibration error in percent, from summed bins."""
    count, confidence, correct = sums.reshape(3, -1)
    return float(100.0 * np.abs(confidence - correct).sum() / max(count.sum(), 1.0))


@dataclass(frozen=True)
class ReliabilityBin:
    """A bar of a reliability diagram: mean confidence, accuracy, and the number of predictions."""

    confidence: float
    accuracy: float
    count: int


def reliability(sums: NDArray[np.float64]) -> list[ReliabilityBin]:
    """The bars of a reliability diagram, without empty ones."""
    rows = sums.reshape(3, -1).T
    return [ReliabilityBin(p / n, hits / n, int(n)) for n, p, hits in rows.tolist() if n]
