"""Fill-in-the-middle: nothing is lost, as many as asked for, and a function of seed, epoch and place."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.example_rng import ExampleRng, Rng
from regard.data.fill_in_the_middle import FillInTheMiddle, Order, Sentinels, draw_cuts, split_tokens, trim
from regard.errors import SpecError

MARKS = Sentinels(1, 2, 3, 4)
IDS = st.lists(st.integers(10, 99), max_size=30)


def drawn(fim: FillInTheMiddle, n: int, place: int, *, seed: int = 1, epoch: int = 0, spare: int = 0) -> list[int]:
    return [*fim.draw(range(100, 100 + n), ExampleRng(seed, epoch).of(place), split_tokens, MARKS, n + spare)]


def test_the_two_orders_as_in_the_paper() -> None:
    parts = ([10, 11], [20], [30, 31])
    assert MARKS.arrange(parts, "psm") == [1, 10, 11, 2, 30, 31, 3, 20, 4]
    assert MARKS.arrange(parts, "spm") == [1, 2, 30, 31, 3, 10, 11, 20, 4]
    assert MARKS.prompt([10, 11], [30, 31], "psm") == [1, 10, 11, 2, 30, 31, 3]
    assert MARKS.prompt([10, 11], [30, 31], "spm") == [1, 2, 30, 31, 3, 10, 11]


@given(IDS, IDS, IDS, st.sampled_from(["psm", "spm"]))
def test_a_rearranged_text_is_put_together_again(prefix: Any, middle: Any, suffix: Any, order: Order) -> None:
    assert MARKS.restore(MARKS.arrange((prefix, middle, suffix), order)) == prefix + middle + suffix
    assert MARKS.restore(prefix) == prefix, "another text is returned as it is"


@given(IDS, IDS, IDS, st.integers(0, 100))
def test_what_does_not_fit_is_cut_off_at_the_outer_ends(prefix: Any, middle: Any, suffix: Any, room: int) -> None:
    found, whole = trim((prefix, middle, suffix), room), prefix + middle + suffix
    if found is None:
        assert len(middle) > room
        return
    a, b, c = (list(part) for part in found)
    assert len(a + b + c) == min(len(whole), room)
    assert (b, prefix[len(prefix) - len(a) :], suffix[: len(c)]) == (middle, a, c)
    if a != prefix and c != suffix:
        assert not a or not c, "the longer end goes first"


def test_as_many_as_asked_for_within_binomial_bounds() -> None:
    fim, n = FillInTheMiddle(rate=0.7, spm=0.25), 4000
    texts = [drawn(fim, 40, place) for place in range(n)]
    rearranged = [text for text in texts if 3 in text]
    spm = [text for text in rearranged if text[1] == 2 and text[2] != 3]
    for count, of, p in ((len(rearranged), n, 0.7), (len(spm), len(rearranged), 0.25)):
        assert abs(count - of * p) < 4 * math.sqrt(of * p * (1 - p)), (count, of, p)


@pytest.mark.parametrize(("rate", "share"), [(0.0, 0), (1.0, 1)])
def test_none_and_all(rate: float, share: int) -> None:
    fim = FillInTheMiddle(rate=rate)
    texts = [drawn(fim, 30, place) for place in range(200)]
    too_long = [text for text in texts if text == list(range(100, 130))]  # its middle leaves no room for sentinels
    assert len(too_long) == 200 if share == 0 else len(too_long) < 20


def test_it_depends_on_seed_epoch_and_place_alone() -> None:
    fim = FillInTheMiddle(rate=1.0)
    assert drawn(fim, 30, 7) == drawn(fim, 30, 7)
    others = {tuple(drawn(fim, 30, p, seed=s, epoch=e)) for p in range(5) for s in (1, 2) for e in (0, 1)}
    assert len(others) > 18


def test_a_text_never_grows_beyond_its_room_and_stays_in_one_piece() -> None:
    fim = FillInTheMiddle(rate=1.0)
    for n in range(2, 40):
        ids = list(range(100, 100 + n))
        for place in range(20):
            made = drawn(fim, n, place)
            restored = MARKS.restore(made)
            assert len(made) <= n
            assert restored == ids[restored[0] - 100 :][: len(restored)]
            assert n >= 8 or made == ids, "too short to be rearranged"
            assert MARKS.restore(drawn(fim, n, place, spare=4)) == ids, "with room for the sentinels nothing is cut off"


def test_cuts_are_uniform() -> None:
    rng = Rng(3)
    cuts = np.array([draw_cuts(9, rng) for _ in range(4000)])
    assert (cuts[:, 0] <= cuts[:, 1]).all()
    counts = np.bincount(cuts.ravel(), minlength=10)
    assert len(counts) == 10
    assert (abs(counts - 800) < 5 * math.sqrt(800)).all()


@pytest.mark.parametrize("settings", [{"rate": 1.1}, {"rate": -0.1}, {"spm": 2}, {"split": "words"}])
def test_settings_out_of_range(settings: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        FillInTheMiddle.parse(settings)
