"""Which tokens are hidden: measured rates, whole words, and never one that may not be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.example_rng import Rng
from regard.data.token_masking import Masking
from regard.errors import SpecError

TOKENS = np.arange(10, 1000)


def test_measured_rates() -> None:
    """15 % are chosen; of these 80 % become the mask, 10 % any token, 10 % stay."""
    chosen = became = other = 0
    for seed in range(200):
        rng = Rng(seed)
        places = Masking().choose(np.arange(100), None, rng)
        seen = Masking().apply(np.full(len(places), 5), 4, TOKENS, rng)
        chosen += len(places)
        became += int((seen == 4).sum())
        other += int((seen >= 10).sum())
    assert chosen == 200 * 15
    assert abs(became / chosen - 0.8) < 0.02
    assert abs(other / chosen - 0.1) < 0.02


@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(0, 1000))
def test_whole_words_or_nothing(joined: list[bool], seed: int) -> None:
    flags = np.array([False, *joined[1:]])
    free = np.arange(len(flags)) * 2 + 1  # places, not numbers
    chosen = set(Masking(whole_words=True).choose(free, flags, Rng(seed)).tolist())
    words = np.split(free, np.flatnonzero(~flags[1:]) + 1)
    assert chosen, "there is always something to guess"
    for word in words:
        assert {*word.tolist()} <= chosen or not chosen & {*word.tolist()}
    most = max(round(0.15 * len(free)), 1)
    assert len(chosen) <= max(most, min(map(len, words)))


@given(st.integers(1, 60), st.integers(0, 1000))
def test_chosen_places_are_some_of_the_free_ones_in_order(n: int, seed: int) -> None:
    free = np.arange(n) * 3
    chosen = Masking().choose(free, None, Rng(seed))
    assert len(chosen) == max(round(0.15 * n), 1)
    assert (np.diff(chosen) > 0).all()
    assert set(chosen.tolist()) <= set(free.tolist())


def test_parts_of_a_whole() -> None:
    with pytest.raises(SpecError, match=r"should add up to at most 1, got 0.8 and 0.3"):
        Masking(mask=0.8, random=0.3)
