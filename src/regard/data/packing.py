"""Packing: short texts share a row, to reduce padding.

The batch records the boundaries of the texts; positions start anew and masks end there, so that texts do not see each other.

    texts   ███████  ████  ██████  ██  ███         rows of 8   ███████·   ██████▒▒   ████▒▒▒·
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.data.bucket import ComputedLengths
from regard.data.ragged import Ragged
from regard.data.scratch import ArrayWriter, blocks
from regard.data.windows import Windows

BLOCK = 1 << 14
"""Number of texts that are packed together."""


class RowLengths(ComputedLengths):
    """The length of each row."""

    def __init__(self, rows: Packed) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def compute(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        _, lengths, counts = self._rows.locate(places)
        return np.add.reduceat(lengths, np.cumsum(counts) - counts) if len(lengths) else lengths


@dataclass(frozen=True)
class Packed:
    """Windows in rows: each full window fills a row, and short ones share rows."""

    windows: Windows
    rows: Ragged | None
    """The short windows in each row, counted from the first short one; None: each has a row of its own."""
    groups: None = None
    shares: None = None
    left_out: int = 0

    @classmethod
    def of(cls, windows: Windows, *, room: int) -> Packed:
        """Pack windows into rows of at most `room` tokens, a fixed number of texts at a time."""
        ids, ends, total = ArrayWriter(np.int32), ArrayWriter(np.int64), 0
        for some in blocks(len(windows.short), BLOCK):
            _, lengths = windows.locate(np.arange(some.start, some.stop) + windows.full_count)
            made = Ragged.of(pack(lengths, room))
            ids.add(made.ids + some.start)
            ends.add(made.ends + total)
            total += len(made.ids)
        return cls(windows, Ragged(ids.array(), ends.array()))

    @classmethod
    def alone(cls, windows: Windows) -> Packed:
        """Put every window in a row of its own."""
        return cls(windows, None)

    @property
    def lengths(self) -> RowLengths:
        return RowLengths(self)

    def __len__(self) -> int:
        return len(self.windows) if self.rows is None else self.windows.full_count + len(self.rows)

    def locate(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the starts and lengths of the windows in these rows, and how many each row has."""
        full = self.windows.full_count
        if self.rows is None:
            return *self.windows.locate(indices), np.ones(len(indices), np.int64)
        is_full = indices < full
        short = self.rows.take(indices[~is_full] - full)
        counts = np.ones(len(indices), np.int64)
        counts[~is_full] = short.lengths
        which = np.repeat(indices, counts)
        which[np.repeat(~is_full, counts)] = short.ids + np.int64(full)
        return *self.windows.locate(which), counts


def pack(lengths: NDArray[np.integer], room: int) -> list[list[int]]:
    """Assign texts to rows of `room` tokens: longest first, each where it leaves the least space (best fit decreasing).

    Rows are in the order of their first text, so texts that each fill a row keep their order.
    """
    rows: list[list[int]] = []
    free: list[tuple[int, int]] = []  # (space left, row), sorted
    for i in np.argsort(-lengths, kind="stable").tolist():
        size = int(lengths[i])
        place = bisect_left(free, (size, 0))
        if place < len(free):
            left, row = free.pop(place)
        else:
            left, row = room, len(rows)
            rows.append([])
        rows[row].append(i)
        if left > size:
            insort(free, (left - size, row))
    return rows
