"""Numbers as people read them."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.report.number import compact, duration, number, numbers


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (44140544, "44,140,544"), (3000.0, "3,000"), (0.93119, "0.9312"), (12.5, "12.5"), (-0.5, "-0.5"),
     (12345.678, "12,346"), (0.99999, "1"), (3e-7, "3e-7"), (1.25e20, "1.25e20"), (math.nan, "nan"),
     (math.inf, "inf"), (-math.inf, "-inf"), (10**400, f"{10**400:,}")],
)  # fmt: skip
def test_number(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.0223456, "0.0223"), (999.7, "1,000"), (8158.2, "8,158"), (9999.9, "10k"), (12345, "12.3k"),
     (999_950, "1M"), (44140544, "44.1M"), (175e9, "175B"), (2e-5, "2e-5"), (-2e6, "-2M"), (999.9e12, "1e15"),
     (math.nan, "nan")],
)  # fmt: skip
def test_compact(value, text):
    assert compact(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 s"), (12.34, "12.3 s"), (59.96, "1 min 00 s"), (126.4, "2 min 06 s"), (3599.9, "1 h 00 min"),
     (12000, "3 h 20 min"), (187200, "2 d 04 h"), (math.nan, "nan")],
)  # fmt: skip
def test_duration(seconds, text):
    assert duration(seconds) == text


def test_a_column_shares_its_decimals():
    assert numbers([27.31, 25.4, 1.0]) == ["27.31", "25.40", "1.00"]
    assert numbers([0.5, 0.25, 1]) == ["0.50", "0.25", "1.00"]
    assert numbers([1.5, math.nan, 2.0]) == ["1.5", "nan", "2.0"]
    assert numbers([40000, 12]) == ["40,000", "12"]
    assert numbers([]) == []


def test_a_column_does_not_hide_its_small_numbers():
    assert numbers([812345, 20.4]) == ["812,345", "20.4"]
    assert numbers([9.5, 0.0004]) == ["9.5", "0.0004"]


@settings(deadline=None)
@given(st.lists(st.floats(min_value=0.01, max_value=9.99), min_size=1))
def test_a_column_says_what_was_measured(values):
    assert all(abs(float(t) - v) <= 0.05 * v for t, v in zip(numbers(values), values, strict=True))


@settings(deadline=None)
@given(st.floats(min_value=1e-30, max_value=1e30))
def test_compact_keeps_three_digits(value):
    text = compact(value).replace(",", "")
    scale = {"k": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}.get(text[-1], 1)
    assert float(text.rstrip("kMBT")) * scale == pytest.approx(value, rel=0.006)
