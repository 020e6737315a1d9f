"""Ticks are numbers people like, and cover what is drawn."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.report.axis import axis, is_drawable, labels, ticks

SIZES = st.floats(min_value=-1e12, max_value=1e12).map(lambda v: 0.0 if abs(v) < 1e-12 else v)


def nice(value: float) -> bool:
    """Is this 1, 2 or 5 times a power of ten?"""
    digits = f"{value:.6e}".split("e")[0].rstrip("0").rstrip(".")
    return digits in ("1", "2", "5")


@pytest.mark.parametrize(
    ("low", "high", "count", "wanted"),
    [(0, 1, 5, [0, 0.2, 0.4, 0.6, 0.8, 1.0]), (0, 3000, 5, [0, 1000, 2000, 3000]), (-1, 1, 4, [-1, -0.5, 0, 0.5, 1]),
     (0.13, 0.87, 4, [0, 0.2, 0.4, 0.6, 0.8, 1.0]), (0, 0.0019, 4, [0, 0.0005, 0.001, 0.0015, 0.002])],
)  # fmt: skip
def test_ticks(low, high, count, wanted):
    assert ticks(low, high, count) == wanted  # exactly: 0.6, never 0.6000000000000001


def test_whole_numbers_get_whole_ticks():
    assert axis([0, 1, 2], snug=True).ticks == (0, 1, 2)


@settings(deadline=None)
@given(SIZES, SIZES)
def test_a_linear_axis_is_nice_and_covers_its_values(a, b):
    it = axis([a, b])
    gaps = [y - x for x, y in zip(it.ticks, it.ticks[1:], strict=False)]
    assert it.low <= min(a, b) and it.high >= max(a, b)
    assert 2 <= len(it.ticks) <= 8
    assert nice(gaps[0]) and max(gaps) == pytest.approx(min(gaps), rel=1e-3)
    assert all(0 <= it.at(v) <= 1 for v in (a, b, *it.ticks))
    assert len(set(it.labels)) == len(it.labels)


@settings(deadline=None)
@given(st.floats(min_value=1e-60, max_value=1e60), st.floats(min_value=1, max_value=1e60), st.booleans())
def test_a_log_axis_covers_its_values(low, ratio, snug):
    it = axis([low, low * ratio], scale="log", snug=snug)
    assert it.ticks and len(it.ticks) <= 12
    assert all(-1e-9 <= it.at(v) <= 1 + 1e-9 for v in (low, low * ratio, *it.ticks))
    if ratio > 10:
        assert all(nice(t) for t in it.ticks)


def test_log_ticks():
    assert axis([0.02, 3.4], scale="log", count=6).ticks == (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
    assert axis([1e-3, 1e6], scale="log", count=5).labels == ("0.001", "0.1", "10", "1,000", "100k")
    assert axis([3, 4], scale="log", count=4).ticks == (3, 3.5, 4)


def test_labels_share_unit_and_decimals():
    assert labels([0, 0.5, 1.0]) == ["0", "0.5", "1.0"]
    assert labels([0, 5000, 10000]) == ["0", "5k", "10k"]
    assert labels([0, 0.0005, 0.001]) == ["0", "0.0005", "0.0010"]
    assert labels([-1e-5, 0, 1e-5]) == ["−1e-5", "0", "1e-5"]
    assert labels([1e9 + 1, 1e9 + 2]) == ["1000000001", "1000000002"]
    assert labels([1000.1, 1000.2]) == ["1,000.1", "1,000.2"]
    assert labels([123456700, 123456800]) == ["123.4567M", "123.4568M"]


def test_one_value_stands_in_the_middle():
    assert axis([100.5]).at(100.5) == pytest.approx(0.5, abs=0.2)
    assert axis([0.0]).at(0.0) == 0.5
    assert axis([7.0], scale="log").low < 7 < axis([7.0], scale="log").high


def test_zero_and_nothing():
    assert axis([8000.0, 8200.0], zero=True).low == 0
    assert axis([]).ticks == (0, 1)
    assert axis([], scale="log").ticks


def test_what_can_be_drawn():
    assert is_drawable(0.0) and is_drawable(-1e99)
    assert not any(is_drawable(v) for v in (math.nan, math.inf, -math.inf, 1e200))
    assert is_drawable(1e-9, "log") and not is_drawable(0.0, "log") and not is_drawable(-1.0, "log")
