"""Batches of similar lengths under a token budget.

The order of the batches is a pure function of (seed, epoch). A batch costs its number of rows times its longest row, so
examples are sorted by their longer side, and within equal lengths by the difference of the two sides, alternately ascending
and descending, so that neighbors are similar on both sides:

    longer side      12                13                14
    target - source  -4 ... 0 ... +4   +4 ... 0 ... -4   -4 ... 0 ... +4
                     ────────────────────────────────────────────────────▶  cut wherever the budget is full

Every epoch shuffles ties, perturbs lengths a little, shifts the grid and may reverse the order, so batches differ.

The order must be the same on every machine and with every version of NumPy. NEP 19 guarantees this for the raw stream of a
bit generator and for `SeedSequence`, but not for the methods of `Generator` such as `permutation`: we draw raw integers and
sort.

A large corpus is shuffled by a computed permutation and sorted pool by pool, so that an epoch needs the memory of one pool,
however many examples it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Protocol, TypeGuard, cast, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard.data.permutation import Permutation
from regard.errors import DataError, SpecError

Indices = NDArray[np.int64]

GRID = 2
"""Step in which differences between the sides are compared: 1 pads a little less, 3 mixes a little more."""
BLUR = 32
"""Lengths are increased randomly by at most 1/BLUR, so that long examples, which rarely have equal lengths, mix too."""
POOL = 1 << 18
"""Number of examples that are sorted together; a corpus of several groups is one pool."""


class LengthTable(Protocol):
    """Lengths in an array, or computed on access by a slice or by indices, as those of an array."""

    def __len__(self) -> int: ...

    def __getitem__(self, which: Any, /) -> NDArray[np.integer[Any]]: ...


class ComputedLengths:
    """Lengths that are computed on access."""

    def __len__(self) -> int:
        raise NotImplementedError

    def compute(self, places: Indices) -> NDArray[np.integer[Any]]:
        """Return the lengths of the examples at these places."""
        raise NotImplementedError

    def __getitem__(self, which: Any, /) -> NDArray[np.integer[Any]]:
        if isinstance(which, slice):
            return self.compute(np.arange(*which.indices(len(self))))
        places = np.asarray(which)
        if places.size and not (-len(self) <= places.min() and places.max() < len(self)):
            raise IndexError(f"{which} is not among {len(self)} lengths")
        return self.compute(places.reshape(-1) % max(len(self), 1)).reshape(places.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype)


class Buckets:
    """Groups examples of similar lengths into batches; `epoch(e)` returns all batches of epoch `e` in order.

    lengths   (N,) or (N, k): tokens of each example, on each of its k sides
    tokens    budget: rows times the longest length on any side; a longer example is a batch of its own
    groups    (N,): the corpus of each example, counted from 0
    shares    share of each group in an epoch, in any unit. Without it, every example occurs exactly once per epoch.
              With it, a group fills its share of N slots, and its examples take turns: a group with more slots than
              examples repeats them, one with fewer continues in the next epoch, so all its examples occur equally often
    """

    def __init__(
        self,
        lengths: ArrayLike | LengthTable,
        *,
        tokens: int,
        seed: int,
        max_rows: int | None = None,
        groups: ArrayLike | None = None,
        shares: Sequence[float] | None = None,
    ) -> None:
        for name, value, least in (("tokens", tokens, 1), ("max_rows", max_rows, 1), ("seed", seed, 0)):
            if value is not None and value < least:
                raise SpecError(f"{name} should be at least {least}, got {value}")
        self.tokens, self.seed, self.max_rows = tokens, seed, max_rows
        self.lengths: LengthTable = lengths if _is_table(lengths) else _check_lengths(cast(ArrayLike, lengths))
        self.pooled = groups is None and len(self.lengths) > POOL
        if not self.pooled:
            self.members = _group_members(groups, len(self.lengths))
            self.slots = _slots_per_epoch(self.members, shares)

    def epoch(self, epoch: int) -> Sequence[Indices]:
        """Return the batches of an epoch in order, each as the indices of its examples."""
        if self.pooled:
            return PooledBatches(self, epoch)
        bits = _raw_rng(self.seed, 0, epoch)
        drawn = self._draw(epoch)
        return self.fill(drawn[_permute(bits, len(drawn))], bits)

    def fill(self, drawn: Indices, bits: np.random.Philox) -> list[Indices]:
        """Return batches of these examples."""
        lengths = np.asarray(self.lengths[drawn]).reshape(len(drawn), -1)
        longest, lean = np.maximum(lengths.max(axis=1), 1), lengths[:, -1] - lengths[:, 0]
        line = _line_up(longest, lean, bits)
        return self._cut(drawn[line], longest[line], bits)

    def _draw(self, epoch: int) -> Indices:
        """Return the examples of this epoch: its slice of each group's endless sequence of permutations."""
        parts = []
        for group, (members, slots) in enumerate(zip(self.members, self.slots, strict=True), start=1):
            start, n = epoch * slots, len(members)
            for lap in range(start // n, (start + slots - 1) // n + 1):
                order = members[_permute(_raw_rng(self.seed, group, lap), n)]
                parts.append(order[max(start - lap * n, 0) : start + slots - lap * n])
        return np.concatenate(parts)

    def _cut(self, line: Indices, longest: NDArray[np.integer[Any]], bits: np.random.Philox) -> list[Indices]:
        """Cut the sorted examples wherever one more row would exceed the budget, and shuffle the batches."""
        batches, start = list[Indices](), 0
        while start < len(line):
            most = max(1, self.tokens // int(longest[start]))
            most = min(most, self.max_rows or most)
            widest = np.maximum.accumulate(longest[start : start + most])
            fits = widest * np.arange(1, len(widest) + 1) <= self.tokens
            rows = max(1, int(np.count_nonzero(fits)))  # the cost only grows, so those that fit come first
            batches.append(line[start : start + rows])
            start += rows
        return [batches[i] for i in _permute(bits, len(batches))]


class LazyBatches(Sequence[Indices]):
    """Batches that are made on access."""

    @overload
    def __getitem__(self, i: int) -> Indices: ...
    @overload
    def __getitem__(self, i: slice) -> list[Indices]: ...
    def __getitem__(self, i: int | slice) -> Indices | list[Indices]:
        places = range(len(self))[i]
        return self._make(places) if isinstance(places, int) else [self._make(place) for place in places]

    def _make(self, place: int) -> Indices:
        raise NotImplementedError


class PooledBatches(LazyBatches):
    """The batches of an epoch of a large corpus. Pools follow one another in random order; one is held at a time."""

    def __init__(self, buckets: Buckets, epoch: int) -> None:
        self._buckets, self._epoch = buckets, epoch
        self._order = Permutation(len(buckets.lengths), buckets.seed, 1, epoch)
        self._held: tuple[int, list[Indices]] = (-1, [])
        pools = range(-(-len(self._order) // POOL))
        self._ends = np.array([*accumulate(len(self._pool(pool)) for pool in pools)])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def _make(self, place: int) -> Indices:
        pool = int(np.searchsorted(self._ends, place, side="right"))
        return self._pool(pool)[place - int(self._ends[pool])]  # counted from the end

    def _pool(self, pool: int) -> list[Indices]:
        if self._held[0] != pool:
            self._held = (-1, [])
            drawn = self._order.take(pool * POOL, (pool + 1) * POOL)
            self._held = pool, self._buckets.fill(drawn, _raw_rng(self._buckets.seed, 2, self._epoch, pool))
        return self._held[1]


class EqualBatches(LazyBatches):
    """Batches of equally many examples, for examples of (nearly) one length."""

    def __init__(self, count: int, rows: int, seed: int, epoch: int) -> None:
        self._order, self._rows = Permutation(count, seed, 3, epoch), rows

    def __len__(self) -> int:
        return -(-len(self._order) // self._rows)

    def _make(self, place: int) -> Indices:
        return self._order.take(place * self._rows, (place + 1) * self._rows)


def _line_up(longest: NDArray[np.integer[Any]], lean: NDArray[np.integer[Any]], bits: np.random.Philox) -> Indices:
    """Return the order in which neighbors are similar; ties keep their (random) order."""
    turn, mirror, shift = (int(r) for r in bits.random_raw(3) % np.array([2, 2, GRID], np.uint64))
    longest = longest + (bits.random_raw(len(longest)) % (longest // BLUR + 1).astype(np.uint64)).astype(np.int64)
    lean = (lean + shift) // GRID
    lean = np.where(longest % 2 == mirror, lean, -lean)
    reach = int(np.abs(lean).max()) + 1
    key = longest * 2 * reach + lean  # both keys in one
    return np.argsort(-key if turn else key, kind="stable")


def padding_shares(lengths: ArrayLike, batches: Sequence[NDArray[np.integer]]) -> tuple[float, ...]:
    """Return the share of positions that are padding, for each side."""
    lengths = _check_lengths(lengths)
    real = sum(lengths[batch].sum(axis=0) for batch in batches)
    padded = sum(len(batch) * lengths[batch].max(axis=0) for batch in batches)
    return tuple(float(share) for share in 1 - real / np.maximum(padded, 1))


def _raw_rng(seed: int, *place: int) -> np.random.Philox:
    """Return the random stream of an epoch, or of one permutation of a group."""
    return np.random.Philox(np.random.SeedSequence(seed, spawn_key=place))


def _permute(bits: np.random.Philox, n: int) -> Indices:
    """Return the numbers below n in random order."""
    return np.argsort(bits.random_raw(n), kind="stable")


def _check_lengths(lengths: ArrayLike) -> NDArray[np.integer]:
    table = np.asarray(lengths)
    if table.ndim not in (1, 2) or 0 in table.shape or not np.issubdtype(table.dtype, np.integer):
        raise DataError(f"lengths should be whole numbers of shape (N,) or (N, k), got {table.dtype} {table.shape}")
    table = table.reshape(len(table), -1).astype(np.int32 if table.dtype == np.int32 else np.int64, copy=False)
    if table.min() < 0:
        raise DataError(f"a length cannot be negative, example {int(table.min(axis=1).argmin())} has {table.min()}")
    return table


def _is_table(lengths: ArrayLike | LengthTable) -> TypeGuard[LengthTable]:
    """True if lengths are computed on access."""
    return not isinstance(lengths, np.ndarray | Sequence)


def _group_members(groups: ArrayLike | None, n: int) -> list[Indices]:
    """Return the examples of each group."""
    if groups is None:
        return [np.arange(n)]
    table = np.asarray(groups)
    if table.shape != (n,) or not np.issubdtype(table.dtype, np.integer) or table.min() < 0:
        raise DataError(f"groups should be {n} numbers from 0, one per example, got {table.dtype} {table.shape}")
    members = [np.flatnonzero(table == group) for group in range(int(table.max()) + 1)]
    if empty := [group for group, found in enumerate(members) if not len(found)]:
        raise DataError(f"group {empty[0]} has no examples; groups are counted from 0 without gaps")
    return members


def _slots_per_epoch(members: Sequence[Indices], shares: Sequence[float] | None) -> list[int]:
    """Return how many examples of each group an epoch has: all of them, or its share of the total."""
    sizes = [len(found) for found in members]
    if shares is None:
        return sizes
    if len(shares) != len(sizes) or not all(0 < share < float("inf") for share in shares):
        raise SpecError(f"shares should be one positive number for each of {len(sizes)} groups, got {list(shares)}")
    return [max(1, round(share / sum(shares) * sum(sizes))) for share in shares]
