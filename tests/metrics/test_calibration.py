"""Calibration, from its definition."""

from __future__ import annotations

import numpy as np
import pytest

from regard.metrics.calibration import BINS, bin_predictions, calibration_error, reliability


def test_a_calibrated_model_has_no_error() -> None:
    rng = np.random.Generator(np.random.PCG64(1))
    confidence = rng.uniform(0.1, 1.0, 200_000)
    good = bin_predictions(confidence, rng.random(200_000) < confidence)
    assert calibration_error(good) < 1
    sure = bin_predictions(np.ones(1000), np.arange(1000) < 600)
    assert calibration_error(sure) == pytest.approx(40)


def test_the_error_is_that_of_the_definition() -> None:
    confidence = np.array([0.95, 0.92, 0.31, 0.33, 1.0, 0.0])
    correct = np.array([True, False, False, True, True, False])
    wanted = 0.0
    for i in range(BINS):
        inside = (confidence >= i / BINS) & ((confidence < (i + 1) / BINS) | (i == BINS - 1))
        if inside.any():
            wanted += abs(confidence[inside].mean() - correct[inside].mean()) * inside.mean()
    assert calibration_error(bin_predictions(confidence, correct)) == pytest.approx(100 * wanted)


def test_bins_add_up_over_items() -> None:
    rng = np.random.Generator(np.random.PCG64(2))
    confidence, correct = rng.random(50), rng.random(50) < 0.5
    parts = bin_predictions(confidence[:20], correct[:20]) + bin_predictions(confidence[20:], correct[20:])
    np.testing.assert_array_almost_equal(parts, bin_predictions(confidence, correct))
    bars = reliability(parts)
    assert sum(bar.count for bar in bars) == 50
    assert all(0 <= bar.accuracy <= 1 for bar in bars)
    assert calibration_error(np.zeros(3 * BINS)) == 0
