"""Span corruption: the published counts, and source and target give the text back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.example_rng import Rng
from regard.data.span_corruption import Spans, corrupt, restore
from regard.errors import SpecError

SENTINELS = np.arange(-1, -200, -1, dtype=np.int32)


def test_the_published_counts() -> None:
    """T5: inputs of 512 tokens come from 568, of which 85 are taken out in 28 spans; targets have 114."""
    assert Spans().longest_text(512) == 568
    assert Spans().span_counts(568) == (85, 28)
    assert Spans().lengths(568) == (512, 114)
    assert Spans(final_sentinel=True).lengths(568) == (512, 115)


@given(st.integers(4, 300), st.floats(0.01, 0.99), st.floats(1, 10), st.booleans())
def test_the_longest_text_fits_and_one_more_token_does_not(
    room: int, rate: float, mean: float, final_sentinel: bool
) -> None:
    spans = Spans(rate, mean, final_sentinel)
    n = spans.longest_text(room)
    assert n == 1 or max(spans.lengths(n)) <= room
    assert max(spans.lengths(n + 1)) > room
    assert all(max(spans.lengths(k)) <= room for k in range(2, n))


def test_the_longest_text_is_found_without_counting_up_to_it() -> None:
    assert Spans().longest_text(10**9) == 1_111_111_110


@given(
    st.integers(2, 200),
    st.floats(0.01, 0.99),
    st.floats(1, 10),
    st.booleans(),
    st.integers(0, 10_000),
)
def test_source_and_target_give_the_text_back(
    n: int, rate: float, mean: float, final_sentinel: bool, seed: int
) -> None:
    spans, ids = Spans(rate, mean, final_sentinel), np.arange(n, dtype=np.int32)
    laid = spans.draw_spans(n, Rng(seed))
    source, target = corrupt(ids, laid, SENTINELS, final_sentinel=final_sentinel)
    assert restore(source.tolist(), target.tolist(), SENTINELS.tolist()) == ids.tolist()
    assert (len(source) + 1, len(target) + 1) == spans.lengths(n)
    noise, count = spans.span_counts(n)
    assert (int((laid[:, 1] - laid[:, 0]).sum()), len(laid)) == (noise, count)
    assert (laid[1:, 0] > laid[:-1, 1]).all(), "something stays between two spans"
    assert [t for t in source.tolist() if t < 0] == SENTINELS[:count].tolist()
    assert [t for t in target.tolist() if t < 0] == SENTINELS[: count + final_sentinel].tolist()


@pytest.mark.parametrize("n", [10, 30, 60])
def test_every_token_goes_about_as_often_as_any_other(n: int) -> None:
    """Also the first and the last, and also where there is only one span."""
    gone, noise = np.zeros(n), Spans().span_counts(n)[0]
    for seed in range(2000):
        for start, end in Spans().draw_spans(n, Rng(seed)).tolist():
            gone[start:end] += 1
    assert gone.sum() == 2000 * noise
    share = gone / 2000 * n / noise
    assert share.min() > 0.2
    assert share.max() < 1.5


def test_restoring_what_a_model_may_write() -> None:
    sentinels = [90, 91, 92]
    assert restore([1, 90, 2, 91], [7, 91, 5, 90, 3, 4, 92, 8], sentinels) == [1, 3, 4, 2, 5]
    assert restore([1, 90, 2], [], sentinels) == [1, 2]


@pytest.mark.parametrize("settings", [{"density": 0}, {"density": 1}, {"mean_length": 0.5}])
def test_settings_that_cannot_be(settings: dict[str, float]) -> None:
    with pytest.raises(SpecError, match=next(iter(settings))):
        Spans.parse(settings)
