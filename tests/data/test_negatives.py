"""Negatives are never a user's own, are drawn as they should be, and are the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from regard.data.negatives import OwnItems, draw_candidates, draw_negatives
from regard.data.ragged import Ragged

ITEMS = 40
DRAW = np.random.Generator(np.random.PCG64(0))
HISTORIES = [DRAW.integers(0, ITEMS, n).tolist() for n in (1, 5, 39, 12, 3)] + [list(range(ITEMS))]
OWN = OwnItems(Ragged.of(HISTORIES), ITEMS)


def raw(seed: int) -> np.random.Philox:
    return np.random.Philox(np.random.SeedSequence(seed))


def test_what_users_have_had() -> None:
    users, items = (part.ravel() for part in np.meshgrid(np.arange(6), np.arange(ITEMS), indexing="ij"))
    wanted = [item in HISTORIES[user] for user, item in zip(users, items, strict=True)]
    assert OWN.contains(users, items).tolist() == wanted
    assert OWN.counts(np.arange(6)).tolist() == [len(set(row)) for row in HISTORIES]
    rows, found = OWN.rows(np.array([4, 0]))
    assert {(int(row), int(item)) for row, item in zip(rows, found, strict=True)} == {
        *((0, item) for item in HISTORIES[4]),
        *((1, item) for item in HISTORIES[0]),
    }


def test_a_negative_is_never_a_positive_of_that_user() -> None:
    users = np.repeat(np.arange(6), 2000)
    drawn = draw_negatives(raw(1), users, OWN)
    assert not OWN.contains(users[users < 5], drawn[users < 5]).any()
    assert (drawn[users == 5] == -1).all()  # who has had all items leaves none
    for user in range(5):
        free = sorted({*range(ITEMS)} - {*HISTORIES[user]})
        counts = np.bincount(drawn[users == user], minlength=ITEMS)[free]
        assert counts.min() > 0.5 * 2000 / len(free) or len(free) > 30  # all of them, about alike
    np.testing.assert_array_equal(drawn, draw_negatives(raw(1), users, OWN))
    assert (drawn != draw_negatives(raw(2), users, OWN)).any()


@pytest.mark.parametrize("items", [ITEMS, 1000])
@pytest.mark.parametrize("popular", [False, True])
def test_candidates(items: int, popular: bool) -> None:
    """Distinct, never owned, never the target; from few items by ranking all, from many by drawing until they fit."""
    own = OwnItems(Ragged.of(HISTORIES), items)
    users, targets = np.arange(6).repeat(50), np.arange(300) % ITEMS
    weights = np.arange(items, dtype=np.float64) if popular else None
    drawn = draw_candidates(1, users, targets, own, 10, weights)
    assert drawn.shape == (300, 10)
    for user, target, row in zip(users, targets, drawn.tolist(), strict=True):
        there = [item for item in row if item >= 0]
        left = {*range(1 if popular else 0, items)} - {*HISTORIES[user], int(target)}
        assert len(there) == len(set(there)) == min(10, len(left))
        assert set(there) <= left
    if popular:
        assert drawn[users == 0].mean() > 1.15 * draw_candidates(1, users, targets, own, 10)[users == 0].mean()
    np.testing.assert_array_equal(drawn, draw_candidates(1, users, targets, own, 10, weights))
    assert (drawn != draw_candidates(2, users, targets, own, 10, weights)).any()
