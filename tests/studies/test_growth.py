"""Exponents of what is known to be a power, and what is not."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.studies.growth import extrapolate, find_crossing, fit_exponent

LENGTHS = [512 << i for i in range(6)]


@given(st.floats(0, 3), st.floats(1e-6, 1e6))
def test_a_power_is_found(power: float, factor: float) -> None:
    fit = fit_exponent([(n, factor * n**power) for n in LENGTHS])
    assert fit is not None and fit.low is not None and fit.high is not None
    assert fit.exponent == pytest.approx(power, abs=1e-9)
    assert fit.low <= fit.exponent <= fit.high
    assert fit.high - fit.low < 1e-6
    assert (fit.first, fit.last) == (2048, 16384)


def test_only_the_last_three_doublings_count() -> None:
    fit = fit_exponent([(n, 1.0 if n < 2048 else float(n) ** 2) for n in reversed(LENGTHS)])
    assert fit is not None
    assert fit.exponent == pytest.approx(2)


def test_the_interval_is_students() -> None:
    """Four points, two of them off by a factor: slope and error by hand."""
    fit = fit_exponent([(1, 1.0), (2, 4.0), (4, 4.0), (8, 8.0)])
    assert fit is not None and fit.low is not None and fit.high is not None
    assert fit.exponent == pytest.approx(0.9)
    rest = [0 - 0.4, 2 - 1.3, 2 - 2.2, 3 - 3.1]
    wide = 4.302652729911275 * math.sqrt(sum(r * r for r in rest) / 2 / 5)
    assert [fit.low, fit.high] == pytest.approx([0.9 - wide, 0.9 + wide])


def test_too_few_points() -> None:
    assert fit_exponent([]) is None
    assert fit_exponent([(512, 1.0)]) is None
    assert fit_exponent([(512, 0.0), (1024, 1.0)]) is None
    two = fit_exponent([(512, 1.0), (1024, 2.0)])
    assert two is not None
    assert two.exponent == pytest.approx(1.0)
    assert two.low is None and two.high is None


def test_what_is_to_be_expected() -> None:
    assert extrapolate([], 512, 1) is None
    assert extrapolate([(512, 3.0)], 1024, 2) == pytest.approx(12)
    assert extrapolate([(512, 3.0), (1024, 6.0)], 4096, 2) == pytest.approx(24)
    assert extrapolate([(512, 3.0), (1024, 1.0)], 2048, 2) == pytest.approx(1)  # noise does not make it shrink


def test_where_two_cross() -> None:
    square, line = [(n, float(n * n)) for n in LENGTHS], [(n, 3000.0 * n) for n in LENGTHS]
    assert find_crossing(line, square) == pytest.approx(3000)
    assert find_crossing(square, line) is None  # at the end it is above
    assert find_crossing([(n, 1.0) for n in LENGTHS], square) == 512
    assert find_crossing([(n, float(n)) for n in LENGTHS[:1]], line) == 512
    assert find_crossing([], line) is None
