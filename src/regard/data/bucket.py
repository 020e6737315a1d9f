"""Batches of like lengths under a token budget, in an order that is a pure function of (seed, epoch, position).

A batch costs its rows times its longest row, so examples are put in line by their longer side, and among equals by how
the two sides differ, back and forth, so that neighbours are alike on both sides:

    longer side      12                13                14
    target - source  -4 ... 0 ... +4   +4 ... 0 ... -4   -4 ... 0 ... +4
                     ────────────────────────────────────────────────────▶  cut wherever the budget is full

Every epoch shuffles ties, blurs lengths a little, moves the grid and turns the line round, so batches are made up anew.

The order has to be the same on every machine and with every version of numpy. NEP 19 promises that for the stream of a
bit generator and for `SeedSequence`, not for the methods of `Generator` (`permutation`): we draw raw integers and sort.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard.errors import DataError, SpecError

Indices = NDArray[np.int64]

GRID = 2
"""Differences between the sides are told apart in steps of this: 1 pads a little less, 3 mixes a little more."""
BLUR = 32
"""A length is blurred upwards by at most one part in this, so that long examples, rarely of equal length, mix too."""


class Buckets:
    """Cuts examples into batches of like lengths; `epoch(e)` is the whole order of epoch `e`.

    lengths   (N,) or (N, k): tokens of each example, on each of its k sides
    tokens    the budget: rows times the longest length on any side; one longer example alone is a batch of its own
    groups    (N,): the corpus each example belongs to, counted from 0
    shares    how much of an epoch each group fills, in any unit. Without, every example comes exactly once an epoch.
              With, a group fills its share of N slots and its examples take turns: a group that has more slots than
              examples starts over, one that has fewer goes on next epoch, so all its examples come equally often
    """

    def __init__(
        self,
        lengths: ArrayLike,
        *,
        tokens: int,
        seed: int,
        max_rows: int | None = None,
        groups: ArrayLike | None = None,
        shares: Sequence[float] | None = None,
    ) -> None:
        self.lengths = _check_lengths(lengths)
        for name, value, least in (("tokens", tokens, 1), ("max_rows", max_rows, 1), ("seed", seed, 0)):
            if value is not None and value < least:
                raise SpecError(f"{name} should be at least {least}, got {value}")
        self.tokens, self.seed, self.max_rows = tokens, seed, max_rows
        self.members = _group_members(groups, len(self.lengths))
        self.slots = _slots_per_epoch(self.members, shares)
        self._longest = np.maximum(self.lengths.max(axis=1), 1)
        self._lean = self.lengths[:, -1] - self.lengths[:, 0]

    def epoch(self, epoch: int) -> list[Indices]:
        """The batches of an epoch, in order, each the indices of its examples."""
        bits = _raw_rng(self.seed, 0, epoch)
        drawn = self._draw(epoch)
        drawn = drawn[_permute(bits, len(drawn))]
        return self._cut(drawn[self._line_up(drawn, bits)], bits)

    def _draw(self, epoch: int) -> Indices:
        """Which examples this epoch uses: its stretch of every group's endless row of permutations."""
        parts = []
        for group, (members, slots) in enumerate(zip(self.members, self.slots, strict=True), start=1):
            start, n = epoch * slots, len(members)
            for lap in range(start // n, (start + slots - 1) // n + 1):
                order = members[_permute(_raw_rng(self.seed, group, lap), n)]
                parts.append(order[max(start - lap * n, 0) : start + slots - lap * n])
        return np.concatenate(parts)

    def _line_up(self, drawn: Indices, bits: np.random.Philox) -> Indices:
        """The order in which neighbours are alike; what is equal stays in the (random) order it came in."""
        turn, mirror, shift = (int(r) for r in bits.random_raw(3) % np.array([2, 2, GRID], np.uint64))
        longest, lean = self._longest[drawn], self._lean[drawn]
        longest = longest + (bits.random_raw(len(drawn)) % (longest // BLUR + 1).astype(np.uint64)).astype(np.int64)
        lean = (lean + shift) // GRID
        lean = np.where(longest % 2 == mirror, lean, -lean)
        reach = int(np.abs(lean).max()) + 1
        key = longest * 2 * reach + lean  # both keys in one
        return np.argsort(-key if turn else key, kind="stable")

    def _cut(self, line: Indices, bits: np.random.Philox) -> list[Indices]:
        """The line cut wherever one more row would break the budget, and the pieces shuffled."""
        longest, batches, start = self._longest[line], [], 0
        while start < len(line):
            most = max(1, self.tokens // int(longest[start]))
            most = min(most, self.max_rows or most)
            widest = np.maximum.accumulate(longest[start : start + most])
            fits = widest * np.arange(1, len(widest) + 1) <= self.tokens
            rows = max(1, int(np.count_nonzero(fits)))  # cost only grows: the fits are the first ones
            batches.append(line[start : start + rows])
            start += rows
        return [batches[i] for i in _permute(bits, len(batches))]


def padding_shares(lengths: ArrayLike, batches: Sequence[NDArray[Any]]) -> tuple[float, ...]:
    """The part of all positions that is padding, for each side."""
    lengths = _check_lengths(lengths)
    real = sum(lengths[batch].sum(axis=0) for batch in batches)
    padded = sum(len(batch) * lengths[batch].max(axis=0) for batch in batches)
    return tuple(float(share) for share in 1 - real / np.maximum(padded, 1))


def _raw_rng(seed: int, *place: int) -> np.random.Philox:
    """The random bits of one place: a group's lap, or an epoch."""
    return np.random.Philox(np.random.SeedSequence(seed, spawn_key=place))


def _permute(bits: np.random.Philox, n: int) -> Indices:
    """The numbers below n in random order."""
    return np.argsort(bits.random_raw(n), kind="stable")


def _check_lengths(lengths: ArrayLike) -> NDArray[Any]:
    table = np.asarray(lengths)
    if table.ndim not in (1, 2) or 0 in table.shape or not np.issubdtype(table.dtype, np.integer):
        raise DataError(f"lengths should be whole numbers of shape (N,) or (N, k), got {table.dtype} {table.shape}")
    table = table.reshape(len(table), -1).astype(np.int32 if table.dtype == np.int32 else np.int64, copy=False)
    if table.min() < 0:
        raise DataError(f"a length cannot be negative, example {int(table.min(axis=1).argmin())} has {table.min()}")
    return table


def _group_members(groups: ArrayLike | None, n: int) -> list[Indices]:
    """The examples of each group."""
    if groups is None:
        return [np.arange(n)]
    table = np.asarray(groups)
    if table.shape != (n,) or not np.issubdtype(table.dtype, np.integer) or table.min() < 0:
        raise DataError(f"groups should be {n} numbers from 0, one an example, got {table.dtype} {table.shape}")
    members = [np.flatnonzero(table == group) for group in range(int(table.max()) + 1)]
    if empty := [group for group, found in enumerate(members) if not len(found)]:
        raise DataError(f"group {empty[0]} has no examples; groups are counted from 0 without gaps")
    return members


def _slots_per_epoch(members: Sequence[Indices], shares: Sequence[float] | None) -> list[int]:
    """How many examples of each group an epoch has: all of them, or its share of as many as there are."""
    sizes = [len(found) for found in members]
    if shares is None:
        return sizes
    if len(shares) != len(sizes) or not all(0 < share < float("inf") for share in shares):
        raise SpecError(f"shares should be one positive number for each of {len(sizes)} groups, got {list(shares)}")
    return [max(1, round(share / sum(shares) * sum(sizes))) for share in shares]
