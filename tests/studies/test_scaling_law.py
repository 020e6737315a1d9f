"""Scaling laws: coefficients of made points are found again, within their intervals."""

from __future__ import annotations

import numpy as np
import pytest

from regard.errors import SpecError
from regard.studies.scaling_law import RunPoint, ScalingLaw, fit_law

TRUE = ScalingLaw(1.7, 400.0, 0.34, 410.0, 0.28)
"""About the law of Hoffmann et al. 2022."""


def points(noise: float, seed: int = 1, law: ScalingLaw = TRUE) -> list[RunPoint]:
    draw = np.random.Generator(np.random.PCG64(seed))
    sizes = [(n, d) for n in (1e5, 3e5, 1e6, 3e6, 1e7) for d in (3e6, 1e7, 3e7, 1e8)]
    return [RunPoint(n, d, law.predict(n, d) * (1 + noise * draw.standard_normal())) for n, d in sizes]


def test_without_noise_the_law_is_found_exactly() -> None:
    law = fit_law(points(0.0), samples=2).law
    assert (law.alpha, law.beta) == pytest.approx((TRUE.alpha, TRUE.beta), rel=1e-3)
    assert (law.floor, law.a, law.b) == pytest.approx((TRUE.floor, TRUE.a, TRUE.b), rel=2e-2)
    assert law.optimal_exponent == pytest.approx(0.28 / 0.62, rel=1e-2)


def test_with_noise_coefficients_lie_within_their_intervals() -> None:
    """95 % intervals of five coefficients over several made data sets: most of them hold the truth."""
    inside = []
    for seed in range(4):
        found = fit_law(points(0.003, seed), samples=60)
        for name in ("floor", "a", "alpha", "b", "beta"):
            low, high = found.interval(name)
            inside.append(low <= getattr(TRUE, name) <= high)
    assert np.mean(inside) >= 0.8


def test_a_larger_run_is_predicted() -> None:
    value, low, high = fit_law(points(0.003), samples=60).predict(4e7, 4e8)
    assert low <= value <= high
    assert value == pytest.approx(TRUE.predict(4e7, 4e8), rel=0.02)


@pytest.mark.parametrize("by", ["parameters", "tokens"])
def test_one_term_alone(by: str) -> None:
    only = ScalingLaw(2.0, 50.0, 0.3, 0.0, 0.0) if by == "parameters" else ScalingLaw(2.0, 0.0, 0.0, 90.0, 0.25)
    law = fit_law(points(0.0, law=only), by=by, samples=2).law
    assert law.predict(5e5, 5e6) == pytest.approx(only.predict(5e5, 5e6), rel=1e-3)
    assert law.optimal_exponent is None


def test_what_cannot_be_fitted() -> None:
    with pytest.raises(SpecError, match="has 5 coefficients and needs at least 6 runs, got 3"):
        fit_law(points(0.0)[:3])
    with pytest.raises(SpecError, match="a law by tokens needs runs that differ in it"):
        fit_law([RunPoint(n, 1e6, 2.0) for n in (1e5, 2e5, 3e5, 4e5)], by="tokens")
    with pytest.raises(SpecError, match="by parameters, tokens or both"):
        fit_law(points(0.0), by="width")
