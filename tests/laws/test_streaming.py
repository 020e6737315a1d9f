"""A whole pass = chunks of any sizes = one token at a time, with states selected, cut and padded on the way."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.laws import streaming
from regard.laws.case import Case
from tests.laws.examples import STREAMING, name_of

pytestmark = pytest.mark.numeric

N = streaming.N
cases = pytest.mark.parametrize("case", STREAMING, ids=name_of)
GRADUAL = [c for c in STREAMING if c.part.can.grads]


@cases
def test_in_chunks(case: Case) -> None:
    streaming.check_chunks(case)


@cases
def test_with_padding_at_the_left(case: Case) -> None:
    streaming.check_left_padding(case)


@cases
def test_prompts_of_different_lengths_padded_at_the_right_then_extended(case: Case) -> None:
    streaming.check_prompts(case)


@cases
@pytest.mark.parametrize("padded", [False, True], ids=["", "padded"])
def test_after_rows_were_selected(case: Case, padded: bool) -> None:
    streaming.check_select(case, padded)


@pytest.mark.parametrize("case", [c for c in STREAMING if c.part.can.rewind], ids=name_of)
def test_after_a_cut(case: Case) -> None:
    streaming.check_cut(case)


@pytest.mark.parametrize("case", GRADUAL[:: max(len(GRADUAL) // 30, 1)], ids=name_of)
def test_with_gradients(case: Case) -> None:
    streaming.check_gradients(case)


@settings(max_examples=40)
@given(
    st.sampled_from(STREAMING),
    st.lists(st.integers(1, N), min_size=1, max_size=4),
    st.booleans(),
    st.sets(st.integers(1, N - 1)),
    st.integers(0, 2 * N),
)
def test_any_case_lengths_side_and_chunks(
    case: Case, lengths: list[int], left: bool, cuts: set[int], capacity: int
) -> None:
    borders = sorted(c for c in cuts if c < max(lengths))
    streaming.check_lengths(case, lengths, left=left, cuts=[borders], capacity=capacity)
