"""Negatives: items that a user has not had.

Uniform among all items, or by popularity; never one of the user's own. Negatives of all users are drawn at once, from the raw
stream of a bit generator, which is the same on every machine.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from regard.data.ragged import Ragged

Weighting = Literal["uniform", "popularity"]
Numbers = NDArray[np.int64]
ROOM = 4
"""Items are drawn by rejection if there are at least this many times as many as needed; otherwise all are ranked."""
ROWS = 1 << 22
"""Numbers that are ranked at a time."""


class OwnItems:
    """Items that each user has had."""

    def __init__(self, histories: Ragged, items: int) -> None:
        self.items = items
        owner = np.repeat(np.arange(len(histories), dtype=np.int64), histories.lengths)
        self._keys = np.unique(owner * items + histories.ids)
        self._ends = np.searchsorted(self._keys, np.arange(1, len(histories) + 1, dtype=np.int64) * items)

    def contains(self, users: Numbers, items: Numbers) -> NDArray[np.bool_]:
        """True where a user has had the item beside it."""
        keys = users * self.items + items
        place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.asarray(self._keys[place] == keys)

    def counts(self, users: Numbers) -> Numbers:
        """The number of distinct items of each user."""
        return self._ends[users] - np.where(users > 0, self._ends[users - 1], 0)

    def rows(self, users: Numbers) -> tuple[Numbers, Numbers]:
        """The distinct items of these users: the place among `users`, and the item."""
        counts = self.counts(users)
        shift = self._ends[users] - np.cumsum(counts)
        keys = self._keys[np.arange(int(counts.sum())) + np.repeat(shift, counts)]
        return np.repeat(np.arange(len(users)), counts), keys % self.items


def draw_negatives(bits: np.random.Philox, users: Numbers, own: OwnItems) -> Numbers:
    """For each entry of `users` an item that this user has not had, uniformly; −1 for a user who has had all."""
    wrong = np.flatnonzero(own.counts(users) < own.items)
    out = np.full(len(users), -1, np.int64)
    while len(wrong):
        out[wrong] = _draw(bits, len(wrong), own.items, None)
        wrong = wrong[own.contains(users[wrong], out[wrong])]
    return out


def draw_candidates(
    seed: int, users: Numbers, targets: Numbers, own: OwnItems, count: int, weights: NDArray[np.float64] | None = None
) -> Numbers:
    """For each user `count` distinct items besides the target that the user has not had, (users, count).

    weights   how likely each item is; by default uniform

    If a user has had so many items that fewer are left, −1 fills the row. Items of weight 0 are never drawn.
    """
    bits = np.random.Philox(np.random.SeedSequence(seed, spawn_key=(5,)))
    there = own.items if weights is None else int(np.count_nonzero(weights))
    if there < ROOM * (count + 1 + int(own.counts(users).max(initial=0))):
        return _rank_all(bits, users, targets, own, count, weights)
    ends = None if weights is None else np.cumsum(weights)
    out = _draw(bits, len(users) * count, own.items, ends).reshape(len(users), count)
    rows = np.arange(len(users))
    while len(rows):
        wrong = _repeats(out[rows]) | (out[rows] == targets[rows, None])
        wrong |= own.contains(np.repeat(users[rows], count), out[rows].ravel()).reshape(wrong.shape)
        new = out[rows]
        new[wrong] = _draw(bits, int(wrong.sum()), own.items, ends)
        out[rows] = new
        rows = rows[wrong.any(1)]
    return out


def _rank_all(
    bits: np.random.Philox,
    users: Numbers,
    targets: Numbers,
    own: OwnItems,
    count: int,
    weights: NDArray[np.float64] | None,
) -> Numbers:
    """Draw without replacement by ranking all items (Efraimidis & Spirakis 2006): the largest u^(1/weight) come first."""
    out = np.full((len(users), count), -1, np.int64)
    step, most = max(ROWS // own.items, 1), min(count, own.items)
    for start in range(0, len(users), step):
        some = slice(start, min(start + step, len(users)))
        size = some.stop - some.start
        keys = np.log(_uniform(bits, size * own.items).reshape(size, own.items))
        if weights is not None:
            keys = np.where(weights > 0, keys / np.maximum(weights, 1e-300), -np.inf)
        keys[own.rows(users[some])] = -np.inf
        keys[np.arange(size), targets[some]] = -np.inf
        order = np.argsort(-keys, axis=1, kind="stable")[:, :most]
        out[some, :most] = np.where(np.isfinite(np.take_along_axis(keys, order, 1)), order, -1)
    return out


def _draw(bits: np.random.Philox, n: int, items: int, ends: NDArray[np.float64] | None) -> Numbers:
    """Items at random: uniformly, or by the cumulative sums of their weights."""
    if ends is None:
        return (bits.random_raw(n) % np.uint64(items)).astype(np.int64)
    place = np.searchsorted(ends, _uniform(bits, n) * ends[-1], side="right")
    return np.asarray(np.minimum(place, items - 1), np.int64)


def _uniform(bits: np.random.Philox, n: int) -> NDArray[np.float64]:
    """Numbers in (0, 1)."""
    return (np.asarray(bits.random_raw(n) >> np.uint64(12)) + 0.5) * 2.0**-52


def _repeats(rows: Numbers) -> NDArray[np.bool_]:
    """Mark the entries that came before in their row."""
    order = np.argsort(rows, axis=1, kind="stable")
    ordered = np.take_along_axis(rows, order, 1)
    again = np.zeros(rows.shape, bool)
    np.put_along_axis(again, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], 1)
    return again
