"""Fit scaling laws: loss by parameters and by data.

    L(N, D) = E + A / N^α + B / D^β        (Hoffmann et al. 2022; without one of the terms, Kaplan et al. 2020)

For given exponents the law is linear in E, A and B, which are found by least squares of relative errors and are not negative;
the exponents are searched on a grid that is refined step by step. Intervals are bootstrap percentiles over residuals.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from regard.errors import SpecError

Floats = NDArray[np.float64]
LOWEST, HIGHEST = 0.02, 2.0
"""Exponents that are searched."""
STEPS, ZOOMS = 13, 8
"""Points of the grid on each axis, and how often it is refined."""
SAMPLES = 200


@dataclasses.dataclass(frozen=True)
class RunPoint:
    """A trained model: its parameters, the tokens it was trained on, and its loss."""

    parameters: float
    tokens: float
    loss: float


@dataclasses.dataclass(frozen=True)
class ScalingLaw:
    """E + A / N^α + B / D^β; a term that was not fitted is zero."""

    floor: float
    a: float
    alpha: float
    b: float
    beta: float

    def predict(self, parameters: float, tokens: float) -> float:
        return float(self.floor + self.a * parameters**-self.alpha + self.b * tokens**-self.beta)

    @property
    def optimal_exponent(self) -> float | None:
        """The power of the compute that the best number of parameters grows with: β / (α + β)."""
        return self.beta / (self.alpha + self.beta) if self.a and self.b else None


@dataclasses.dataclass(frozen=True)
class FittedLaw:
    """A law, laws fitted to resampled points, and the intervals that follow."""

    law: ScalingLaw
    resampled: Sequence[ScalingLaw]

    def interval(self, name: str) -> tuple[float, float]:
        """The 95 % interval of a coefficient."""
        return _interval([float(getattr(law, name)) for law in self.resampled])

    def predict(self, parameters: float, tokens: float) -> tuple[float, float, float]:
        """The predicted loss, and its 95 % interval."""
        low, high = _interval([law.predict(parameters, tokens) for law in self.resampled])
        return self.law.predict(parameters, tokens), low, high

    def plain(self) -> dict[str, object]:
        names = [field.name for field in dataclasses.fields(self.law)]
        return {name: {"value": getattr(self.law, name), "interval": list(self.interval(name))} for name in names}


def fit_law(points: Sequence[RunPoint], *, by: str = "both", samples: int = SAMPLES, seed: int = 1) -> FittedLaw:
    """Fit the law to points, by `parameters`, `tokens` or `both`, with bootstrap intervals."""
    if by not in ("parameters", "tokens", "both"):
        raise SpecError(f"a law is by parameters, tokens or both, got {by!r}")
    terms = 2 if by == "both" else 1
    least = 2 * terms + 2
    if len(points) < least:
        raise SpecError(
            f"a law by {by} has {2 * terms + 1} coefficients and needs at least {least} runs, got {len(points)}"
        )
    logs = np.log([[p.parameters, p.tokens] for p in points])
    axes = {"parameters": [0], "tokens": [1], "both": [0, 1]}[by]
    if any(np.ptp(logs[:, axis]) == 0 for axis in axes):
        raise SpecError(f"a law by {by} needs runs that differ in it")
    losses = np.array([p.loss for p in points])
    law = _law(_fit(logs[:, axes], losses), axes)
    fitted = np.array([law.predict(p.parameters, p.tokens) for p in points])
    residuals = losses / fitted - 1
    residuals *= np.sqrt(len(points) / max(len(points) - 2 * terms - 1, 1))  # a fit hides some of the noise
    draw = np.random.Generator(np.random.PCG64(seed))
    again = [fitted * (1 + draw.choice(residuals, len(points))) for _ in range(samples)]
    return FittedLaw(law, [_law(_fit(logs[:, axes], drawn), axes) for drawn in again])


def _law(found: tuple[Floats, Floats], axes: Sequence[int]) -> ScalingLaw:
    coefficients, exponents = found
    values = {axis: (float(coefficients[1 + i]), float(exponents[i])) for i, axis in enumerate(axes)}
    (a, alpha), (b, beta) = (values.get(axis, (0.0, 0.0)) for axis in (0, 1))
    return ScalingLaw(float(coefficients[0]), a, alpha, b, beta)


def _fit(logs: Floats, losses: Floats) -> tuple[Floats, Floats]:
    """Coefficients (1 + k,) and exponents (k,) of the best fit; `logs` (points, k)."""
    k = logs.shape[1]
    centers, span = np.full(k, np.sqrt(LOWEST * HIGHEST)), np.log(HIGHEST / LOWEST) / 2
    best: tuple[float, Floats, Floats] | None = None
    for _ in range(ZOOMS):
        lines = [np.exp(np.linspace(np.log(c) - span, np.log(c) + span, STEPS)) for c in centers]
        grid = np.stack([axis.ravel() for axis in np.meshgrid(*lines)], 1)
        errors, coefficients = _solve(grid, logs, losses)
        at = int(errors.argmin())
        if best is None or errors[at] <= best[0]:
            best = float(errors[at]), coefficients[at], grid[at]
        centers, span = best[2], span * 2.5 / (STEPS - 1)
    assert best is not None
    scale = np.exp(best[2] * logs.mean(0))  # the columns were centered
    return np.concatenate([best[1][:1], best[1][1:] * scale]), best[2]


def _solve(grid: Floats, logs: Floats, losses: Floats) -> tuple[Floats, Floats]:
    """Squared relative errors (g,) and coefficients (g, 1 + k) for each row of exponents."""
    powers = np.exp(-grid[:, None, :] * (logs - logs.mean(0)))  # centered: columns of like size
    columns = np.concatenate([np.ones((*powers.shape[:2], 1)), powers], 2) / losses[:, None]
    count = columns.shape[2]
    errors, best = np.full(len(grid), np.inf), np.zeros((len(grid), count))
    for kept in range(1, 1 << count):  # non-negative least squares: every subset of the terms
        chosen = [i for i in range(count) if kept >> i & 1]
        some = columns[:, :, chosen]
        left = np.einsum("gpi,gpj->gij", some, some) + 1e-12 * np.eye(len(chosen))
        found = np.linalg.solve(left, some.sum(1)[..., None])[..., 0]
        error = ((np.einsum("gpi,gi->gp", some, found) - 1) ** 2).sum(1)
        better = (found >= 0).all(1) & (error < errors)
        errors[better] = error[better]
        best[better] = 0.0
        best[np.ix_(better, chosen)] = found[better]
    return errors, best


def _interval(values: Sequence[float]) -> tuple[float, float]:
    low, high = np.percentile(values, (2.5, 97.5))
    return float(low), float(high)
