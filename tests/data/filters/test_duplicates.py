"""Pairs that came before, exactly or nearly, by hashes in one flat array."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from regard.data.filters.duplicates import Duplicates, HashSet, NearDuplicates, letters_only
from tests.data.filters.test_filters import kept


@given(
    st.lists(st.integers(0, 2**64 - 1) | st.integers(2, 9) | st.sampled_from([2**64 - 1, 1023, 2047]), max_size=3000)
)
def test_seen_is_a_set(numbers: list[int]) -> None:
    seen, plain = HashSet(), set[int]()
    for number in numbers:
        if number:  # shares its slot with 1
            assert seen.add(number) is (number not in plain)
            plain.add(number)
    assert len(seen) == len(plain)


def test_seen_grows_and_stays_small() -> None:
    tracemalloc.start()
    seen = HashSet()
    assert all(seen.add(n * 0x9E3779B97F4A7C15 % 2**64) for n in range(1, 10_001))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert not any(seen.add(n * 0x9E3779B97F4A7C15 % 2**64) for n in range(1, 10_001))
    assert held < 22 * 10_000 + 1000


def test_duplicates_of_a_pair_or_of_one_side() -> None:
    pairs = ("a", "A"), ("a", "B"), ("a", "A"), ("b", "A"), ("A", "a")
    assert kept(Duplicates(), *pairs) == [True, True, False, True, True]
    assert kept(Duplicates("source"), *pairs) == [True, False, False, True, True]
    assert kept(Duplicates("target"), *pairs) == [True, True, False, False, True]
    assert kept(Duplicates(), ("ab", "c"), ("a", "bc")) == [True, True]


def test_near_duplicates_have_the_same_letters() -> None:
    same = ("Page 12.", "Seite 12."), ("page 7", "SEITE — 7!"), ("Ｐａｇｅ", "Seite")
    assert kept(NearDuplicates(), *same, ("Page twelve", "Seite zwölf"), ("page", "Blatt")) == [
        True,
        False,
        False,
        True,
        True,
    ]
    assert kept(NearDuplicates("source"), *same, ("page", "Blatt")) == [True, False, False, False]


def test_texts_without_letters_are_compared_as_they_are() -> None:
    assert kept(NearDuplicates(), ("12", "13"), ("12", "14"), ("12", "13")) == [True, True, False]
    assert (letters_only("Don't, 3 TIMES!"), letters_only("ﬁn"), letters_only("—")) == ("donttimes", "fin", "—")


def test_marks_that_are_vowels_or_tones_tell_texts_apart() -> None:
    hindi = ("You are going.", "तुम जा रहे हो।"), ("You are going.", "तुम जा रही हो।"), ("you are going", "तुम जा रहे हो")
    assert kept(NearDuplicates(), *hindi) == [True, True, False]
    assert letters_only("มา 3!") != letters_only("ม้า 3!")
