"""Packing: short texts share a row, to reduce padding.

The batch records the boundaries of the texts; positions start anew and masks end there, so that texts do not see each other.

    texts   ███████  ████  ██████  ██  ███         rows of 8   ███████·   ██████▒▒   ████▒▒▒·
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.data.ragged import Ragged
from regard.data.windows import Windows


@dataclass(frozen=True)
class Packed:
    """Windows packed into rows; `rows[i]` holds the indices of the windows in row i."""

    windows: Windows
    rows: Ragged
    lengths: NDArray[np.int64]
    groups: None = None
    shares: None = None
    left_out: int = 0

    @classmethod
    def of(cls, windows: Windows, *, room: int) -> Packed:
        """Pack windows into rows of at most `room` tokens."""
        return cls._made(windows, pack(windows.lengths, room))

    @classmethod
    def alone(cls, windows: Windows) -> Packed:
        """Put every window in a row of its own."""
        return cls._made(windows, [[i] for i in range(len(windows))])

    @classmethod
    def _made(cls, windows: Windows, rows: list[list[int]]) -> Packed:
        made = Ragged.of(rows)
        first = np.concatenate([[0], made.ends[:-1]]).astype(np.int64)
        return cls(windows, made, np.add.reduceat(windows.lengths[made.ids], first))

    def __len__(self) -> int:
        return len(self.rows)


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
