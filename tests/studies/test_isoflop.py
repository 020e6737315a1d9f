"""The best size for a budget: made points give back the exponent of their law, within its interval."""

from __future__ import annotations

import numpy as np
import pytest

from regard.studies.isoflop import fit_isoflops
from regard.studies.scaling_law import RunPoint, ScalingLaw

TRUE = ScalingLaw(1.7, 400.0, 0.34, 410.0, 0.28)


def budgets(noise: float = 0.0, seed: int = 1) -> dict[float, list[RunPoint]]:
    """Seven sizes around the best one for each of four budgets, C = 6 N D."""
    draw, out = np.random.Generator(np.random.PCG64(seed)), {}
    for flops in (1e15, 1e16, 1e17, 1e18):
        ratio = TRUE.alpha * TRUE.a / (TRUE.beta * TRUE.b)
        best = (ratio * (flops / 6) ** TRUE.beta) ** (1 / (TRUE.alpha + TRUE.beta))
        sizes = best * np.exp(np.linspace(-0.8, 0.8, 7))
        out[flops] = [
            RunPoint(n, flops / 6 / n, TRUE.predict(n, flops / 6 / n) * (1 + noise * draw.standard_normal()))
            for n in sizes
        ]
    return out


def test_the_exponent_of_a_law_is_found() -> None:
    found = fit_isoflops(budgets(), samples=20)
    assert found.exponent == pytest.approx(TRUE.optimal_exponent, rel=0.01)
    assert len(found.best) == 4
    assert not found.skipped


def test_with_noise_it_lies_within_its_interval() -> None:
    inside = []
    for seed in range(6):
        low, high = fit_isoflops(budgets(0.0005, seed), samples=100).interval or (0.0, 0.0)
        assert high - low < 0.3
        inside.append(low <= (TRUE.optimal_exponent or 0.0) <= high)
    assert np.mean(inside) >= 0.8


def test_budgets_without_a_best_size_are_named() -> None:
    made = budgets()
    found = fit_isoflops({1e15: made[1e15][:3] * 2, 1e17: made[1e17]})
    assert found.skipped == {1e15: "3 sizes, and a parabola needs 4"}
    assert (found.exponent, found.interval) == (None, None)
    rising = [RunPoint(n, 1.0, 1.0 + i * i / 10) for i, n in enumerate((1e5, 2e5, 4e5, 8e5), 1)]
    assert "outside of the sizes" in fit_isoflops({1e15: rising}).skipped[1e15]
