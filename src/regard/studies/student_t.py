"""Student's t distribution: probability, quantile, power.

The cumulative probability is a regularized incomplete beta function, computed by its continued fraction (Lentz's method).
Power is that of the noncentral t distribution, integrated over the distribution of the sample deviation.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from regard.errors import SpecError

PRECISION = 1e-15
GRID = 4001
"""Points of the integral over the sample deviation."""


def t_cdf(t: float, df: float) -> float:
    """P(T ≤ t) for `df` degrees of freedom, which need not be a whole number."""
    _check(df)
    if math.isinf(t):
        return float(t > 0)
    tail = 0.5 * _two_tails(t, df)
    return 1.0 - tail if t > 0 else tail


def t_two_sided(t: float, df: float) -> float:
    """P(|T| ≥ |t|), exact also where it is tiny."""
    _check(df)
    return 0.0 if math.isinf(t) else _two_tails(t, df)


@lru_cache(maxsize=10_000)
def t_quantile(p: float, df: float) -> float:
    """The t with P(T ≤ t) = p."""
    if not 0 < p < 1:
        raise SpecError(f"a quantile needs a probability between 0 and 1, got {p}")
    if p < 0.5:
        return -t_quantile(1 - p, df)
    low, high = 0.0, 1.0
    while t_cdf(high, df) < p:
        low, high = high, 2 * high
        if math.isinf(high):
            return high
    while high - low > 1e-13 * max(high, 1.0):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, df) < p else (low, middle)
    return (low + high) / 2


def t_power(shift: float, df: float, alpha: float = 0.05) -> float:
    """The power of a two-sided t test, for a true difference of `shift` standard errors.

    The statistic is (Z + shift) / S, where Z is normal and S² = χ²/df: for each S the probability is normal.
    """
    critical = t_quantile(1 - alpha / 2, df)
    spread = 12 / math.sqrt(2 * df)
    s = np.linspace(max(1e-9, 1 - spread), 1 + spread, GRID)
    log_density = (df - 1) * np.log(s) - df * s * s / 2
    density = np.exp(log_density - log_density.max())
    normal = np.vectorize(lambda x: 0.5 * math.erfc(-x / math.sqrt(2)))
    reached = normal(shift - critical * s) + normal(-shift - critical * s)
    return float((density * reached).sum() / density.sum())


def _check(df: float) -> None:
    if not df > 0:
        raise SpecError(f"degrees of freedom should be positive, got {df}")


def _two_tails(t: float, df: float) -> float:
    """P(|T| ≥ |t|) as the incomplete beta function I_x(df/2, 1/2) at x = df / (df + t²)."""
    a, b = df / 2, 0.5
    x, rest = df / (df + t * t), t * t / (df + t * t)  # the rest is 1 − x without its rounding
    if not rest:
        return 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(x, a, b) / a
    return 1.0 - front * _fraction(rest, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function."""
    tiny = 1e-300
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1)
    d = 1 / (d or tiny)
    value = d
    for m in range(1, 10_000):
        for factor in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / ((1 + factor * d) or tiny)
            c = (1 + factor / c) or tiny
            value *= c * d
        if abs(c * d - 1) < PRECISION:
            break
    return value
