"""Millions of texts: in a list, or memory-mapped if large.

    texts    ·a cattwo dogs…    UTF-8, concatenated; starts with one extra byte, because an empty file cannot be mapped
    offsets  1 6       14 …     where each text begins, and where the last one ends

Either way, items are `str`. The temporary file has no name and disappears with its last reader; its pages belong to the
operating system, which can reclaim them at any time.
"""

from __future__ import annotations

import mmap
import tempfile
import weakref
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, chain
from pathlib import Path
from typing import BinaryIO, overload

import numpy as np
from numpy.typing import NDArray

from regard.files.storage import explain_errors

ROOM = 1 << 26
"""Maximum size in bytes of texts that are kept in a list."""
OBJECT = 64
"""Approximate memory overhead of a Python string in bytes."""
BLOCK = 4096
"""Number of short texts that are read or written at a time."""


class _Texts(Sequence[str]):
    """A sequence of texts that are read on access."""

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: int | slice) -> str | list[str]:
        places = range(len(self))[i]
        return self._read(range(places, places + 1))[0] if isinstance(places, int) else self._read(places)

    def _read(self, places: range) -> list[str]:
        raise NotImplementedError


class MappedLines(_Texts):
    """Texts in a memory-mapped file: all of them, or the given rows."""

    def __init__(self, texts: mmap.mmap, offsets: NDArray[np.int64], rows: NDArray[np.int64] | None = None) -> None:
        self._texts, self._offsets, self._rows = texts, offsets, rows
        self.block = max(1, min(BLOCK, BLOCK * OBJECT * (len(offsets) - 1) // len(texts)))

    def __len__(self) -> int:
        return len(self._offsets) - 1 if self._rows is None else len(self._rows)

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self[i : i + self.block] for i in range(0, len(self), self.block))

    def take(self, rows: NDArray[np.int64]) -> MappedLines:
        """Return the texts of these rows, in this order; only row numbers are copied."""
        return MappedLines(self._texts, self._offsets, rows if self._rows is None else self._rows[rows])

    def _read(self, places: range) -> list[str]:
        wanted = np.arange(places.start, places.stop, places.step)
        rows, texts = wanted if self._rows is None else self._rows[wanted], self._texts
        starts, ends = self._offsets[rows].tolist(), self._offsets[rows + 1].tolist()
        return [texts[start:end].decode() for start, end in zip(starts, ends, strict=True)]


class ConcatenatedLines(_Texts):
    """The texts of several sequences as one sequence."""

    def __init__(self, parts: Sequence[Sequence[str]]) -> None:
        self._parts, self._ends = parts, list(accumulate(map(len, parts)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._parts)

    def _read(self, places: range) -> list[str]:
        parts = ((place, bisect_right(self._ends, place)) for place in places)
        return [self._parts[part][place - self._ends[part]] for place, part in parts]  # negative: from the end


class LineWriter:
    """Collects texts one by one; `lines` returns all of them."""

    def __init__(self) -> None:
        self._held: list[str] = []
        self._size, self._room = 0, ROOM
        self._files: tuple[BinaryIO, BinaryIO] | None = None
        self._end = 1

    def add(self, text: str) -> None:
        self._held.append(text)
        self._size += len(text) + OBJECT
        if self._size > self._room:
            self._put_away()

    def lines(self) -> Sequence[str]:
        """Return all texts; nothing may be added afterwards."""
        if self._files is None:
            return self._held
        self._put_away()
        texts, offsets = map(_map_file, self._files)
        return MappedLines(texts, np.frombuffer(offsets, np.int64))

    def _put_away(self) -> None:
        """Write the buffered texts to the files; after the first time, the buffer is small."""
        with explain_errors("keep the texts of a corpus", Path(tempfile.gettempdir()), needed=self._size):
            if self._files is None:
                self._files, self._room = (_open_scratch(), _open_scratch()), BLOCK * OBJECT
                weakref.finalize(self, _close, *self._files)  # even if `lines` is never called
                self._files[0].write(b"\0")
                self._files[1].write(np.array([self._end]).tobytes())
            texts, offsets = self._files
            for start in range(0, len(self._held), BLOCK):
                block = [text.encode() for text in self._held[start : start + BLOCK]]
                ends = self._end + np.cumsum([len(text) for text in block], dtype=np.int64)
                self._end = int(ends[-1])
                texts.write(b"".join(block))
                offsets.write(ends.tobytes())
            texts.flush()
            offsets.flush()
        self._held, self._size = [], 0


def rows_at_once(texts: Sequence[str]) -> int:
    """Return how many texts can be held at a time."""
    return texts.block if isinstance(texts, MappedLines) else BLOCK // 4


def take_rows(texts: Sequence[str], rows: NDArray[np.int64]) -> Sequence[str]:
    """Return the texts of these rows, in this order, in the same kind of storage."""
    return texts.take(rows) if isinstance(texts, MappedLines) else [texts[row] for row in rows.tolist()]


def _open_scratch() -> BinaryIO:
    return tempfile.TemporaryFile(prefix="regard-")


def _map_file(file: BinaryIO) -> mmap.mmap:
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # holds its own reference to the file


def _close(*files: BinaryIO) -> None:
    for file in files:
        with suppress(OSError):  # a full disk was reported before
            file.close()
