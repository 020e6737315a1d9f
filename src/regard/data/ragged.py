"""Many token lists in two flat arrays: ids and ends.

    [[5, 6, 7], [], [8]]   <->   ids = 5 6 7 8    ends = 3 3 4

A million sentences are two buffers instead of a million objects, and both can be memory-mapped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard.data.scratch import blocks
from regard.errors import DataError


@dataclass(frozen=True, eq=False)
class Ragged:
    """Token lists as flat arrays; `ragged[i]` is a view, never a copy."""

    ids: NDArray[Any]
    """int32, or uint16 where a vocabulary is small and a corpus large."""
    ends: NDArray[np.int64]

    def __post_init__(self) -> None:
        for name, array, dtypes in (("ids", self.ids, ("int32", "uint16")), ("ends", self.ends, ("int64",))):
            if array.ndim != 1 or array.dtype.name not in dtypes:
                raise DataError(f"{name} should be a flat array of {dtypes[0]}, got {array.dtype} {array.shape}")
        last = int(self.ends[-1]) if len(self.ends) else 0
        if last != len(self.ids) or any(self._decreases(some) for some in blocks(len(self.ends))):
            raise DataError(f"ends should increase up to the number of ids, {len(self.ids)}; the last is {last}")

    def _decreases(self, some: slice) -> bool:
        before = int(self.ends[some.start - 1]) if some.start else 0
        return bool((np.diff(self.ends[some], prepend=before) < 0).any())

    @classmethod
    def of(cls, lists: Iterable[Sequence[int] | NDArray[np.integer]]) -> Self:
        """Build from token lists."""
        lists = lists if isinstance(lists, Sequence) else list(lists)
        ends = np.cumsum(np.fromiter(map(len, lists), np.int64, len(lists)), dtype=np.int64)
        total = int(ends[-1]) if len(ends) else 0
        return cls(np.fromiter(chain.from_iterable(lists), np.int32, total), ends)

    @classmethod
    def concat(cls, parts: Sequence[Ragged]) -> Self:
        """Concatenate the lists of several parts."""
        bases = np.cumsum([0, *(len(part.ids) for part in parts)])
        ends = [part.ends + base for part, base in zip(parts, bases, strict=False)]
        ids = [part.ids for part in parts]
        return cls(np.concatenate([np.empty(0, np.int32), *ids]), np.concatenate([np.empty(0, np.int64), *ends]))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The length of each list."""
        return np.diff(self.ends, prepend=0)

    def take(self, indices: ArrayLike) -> Ragged:
        """Return the lists at `indices`, in that order, as a copy; only these are read."""
        indices = np.asarray(indices, np.int64)
        last = self.ends[indices]  # raises IndexError if out of range
        indices = np.where(indices < 0, indices + len(self), indices)
        lengths = last - np.where(indices > 0, self.ends[indices - 1], 0)
        ends = np.cumsum(lengths, dtype=np.int64)
        shift = last - ends  # by how much each list moves
        return Ragged(self.ids[np.arange(lengths.sum()) + np.repeat(shift, lengths)], ends)

    def where(self, keep: NDArray[np.bool_], other: Ragged) -> Ragged:
        """Return the lists of this object where `keep` is true, else those of `other`."""
        if keep.all():
            return self
        mine = np.arange(len(self))
        return Ragged.concat([self, other]).take(np.where(keep, mine, mine + len(self)))

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, i: int) -> NDArray[np.int32]:
        end = self.ends[i]  # raises IndexError if out of range
        return self.ids[(self.ends[i - 1] if i % len(self.ends) else 0) : end]

    def __iter__(self) -> Iterator[NDArray[np.int32]]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ragged):
            return NotImplemented
        return np.array_equal(self.ends, other.ends) and np.array_equal(self.ids, other.ids)

    def __repr__(self) -> str:
        return f"Ragged({len(self)} lists, {len(self.ids)} ids)"
