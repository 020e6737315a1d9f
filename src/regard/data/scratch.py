"""Arrays of any size: in memory, or memory-mapped if large.

An array that grows with the corpus is written block by block. The temporary file has no name and disappears with its last
reader; its pages belong to the operating system, which can reclaim them at any time.
"""

from __future__ import annotations

import math
import os
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from regard.files.storage import explain_errors

ROOM = 1 << 22
"""Maximum size in bytes of an array that is kept in memory."""
BLOCK = 1 << 16
"""Number of elements that are read or written at a time."""


class ArrayWriter:
    """Collects the blocks of an array; `array` returns all of it."""

    def __init__(self, dtype: Any, row: tuple[int, ...] = ()) -> None:
        self._dtype, self._row = np.dtype(dtype), row
        self._held: list[NDArray[Any]] = []
        self._size = 0
        self._file: BinaryIO | None = None

    def add(self, block: NDArray[Any]) -> None:
        """Append rows."""
        self._held.append(np.array(block, self._dtype).reshape(-1, *self._row))
        self._size += self._held[-1].nbytes
        if self._size > ROOM:
            self._put_away()

    def array(self) -> NDArray[Any]:
        """Return all rows; nothing may be added afterwards."""
        if self._file is None:
            return np.concatenate([np.empty((0, *self._row), self._dtype), *self._held])
        self._put_away()
        return np.memmap(self._file, self._dtype, "r").view(np.ndarray).reshape(-1, *self._row)

    def _put_away(self) -> None:
        with explain_errors("keep the data of a corpus", Path(tempfile.gettempdir()), needed=self._size):
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="regard-")  # noqa: SIM115  stays open
                weakref.finalize(self, self._file.close)  # a mapping holds its own reference
            for block in self._held:
                self._file.write(block.data)
            self._file.flush()
        self._held, self._size = [], 0


def allocate(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return a new array of zeros, to be filled in any order. The disk space of a large one is reserved at once."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size <= ROOM:
        return np.zeros(shape, dtype)
    with (
        explain_errors("keep the data of a corpus", Path(tempfile.gettempdir()), needed=size),
        tempfile.TemporaryFile(prefix="regard-") as file,
    ):
        if hasattr(os, "posix_fallocate"):  # without space, writing to a mapped file would end the process
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)
        return np.memmap(file, dtype, "r+", shape=shape).view(np.ndarray)


def blocks(count: int, size: int | None = None) -> Iterator[slice]:
    """Yield slices that together cover `count` elements."""
    size = BLOCK if size is None else size
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def measure_lengths(*ends: NDArray[np.int64], plus: int = 0) -> NDArray[np.int32]:
    """Return the lengths of lists that end there and have some tokens more, (N,), or (N, k) for several columns."""
    out = ArrayWriter(np.int32, (len(ends),) if len(ends) > 1 else ())
    for some in blocks(len(ends[0])):
        sides = [np.diff(one[some], prepend=one[some.start - 1] if some.start else 0) for one in ends]
        out.add(np.stack(sides, 1) + plus)
    return out.array()
