"""Texts by the million: a list while they are few, a scratch file mapped into memory when they are many.

    texts    ·a cattwo dogs…    UTF-8, one after the other; a byte comes first, for what is empty cannot be mapped
    offsets  1 6       14 …     where each begins, and where the last ends

Whoever asks for a text gets a `str` either way. The file has no name and is gone with the last who reads it; its pages
belong to the system, which takes them back when it needs them.
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
"""So many bytes of texts are kept as a list; more go to a file."""
OBJECT = 64
"""What a text takes in memory beside its characters, about."""
BLOCK = 4096
"""So many texts are read or written at a time, where they are short."""


class _Texts(Sequence[str]):
    """Texts that are read when they are asked for."""

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
    """Texts that lie in a mapped file: all of them, or those of the given rows."""

    def __init__(self, texts: mmap.mmap, offsets: NDArray[np.int64], rows: NDArray[np.int64] | None = None) -> None:
        self._texts, self._offsets, self._rows = texts, offsets, rows
        self._block = max(1, min(BLOCK, BLOCK * OBJECT * (len(offsets) - 1) // len(texts)))

    def __len__(self) -> int:
        return len(self._offsets) - 1 if self._rows is None else len(self._rows)

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self[i : i + self._block] for i in range(0, len(self), self._block))

    def take(self, rows: NDArray[np.int64]) -> MappedLines:
        """The texts of these rows, in this order; nothing is copied but the numbers."""
        return MappedLines(self._texts, self._offsets, rows if self._rows is None else self._rows[rows])

    def _read(self, places: range) -> list[str]:
        wanted = np.arange(places.start, places.stop, places.step)
        rows, texts = wanted if self._rows is None else self._rows[wanted], self._texts
        starts, ends = self._offsets[rows].tolist(), self._offsets[rows + 1].tolist()
        return [texts[start:end].decode() for start, end in zip(starts, ends, strict=True)]


class ConcatenatedLines(_Texts):
    """The texts of several parts as if they were one."""

    def __init__(self, parts: Sequence[Sequence[str]]) -> None:
        self._parts, self._ends = parts, list(accumulate(map(len, parts)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._parts)

    def _read(self, places: range) -> list[str]:
        parts = ((place, bisect_right(self._ends, place)) for place in places)
        return [self._parts[part][place - self._ends[part]] for place, part in parts]  # counted from the part's end


class LineWriter:
    """Texts as they come in, one by one; `lines` is all of them."""

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
        """The texts, of which no more may come."""
        if self._files is None:
            return self._held
        self._put_away()
        texts, offsets = map(_map_file, self._files)
        return MappedLines(texts, np.frombuffer(offsets, np.int64))

    def _put_away(self) -> None:
        """Write what is held to the files; from the first time on little is held."""
        with explain_errors("keep the texts of a corpus", Path(tempfile.gettempdir()), needed=self._size):
            if self._files is None:
                self._files, self._room = (_open_scratch(), _open_scratch()), BLOCK * OBJECT
                weakref.finalize(self, _close, *self._files)  # also if nobody asks for the lines
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


def take_rows(texts: Sequence[str], rows: NDArray[np.int64]) -> Sequence[str]:
    """The texts of these rows, in this order, kept as they were kept before."""
    return texts.take(rows) if isinstance(texts, MappedLines) else [texts[row] for row in rows.tolist()]


def _open_scratch() -> BinaryIO:
    return tempfile.TemporaryFile(prefix="regard-")


def _map_file(file: BinaryIO) -> mmap.mmap:
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # has the file open for itself


def _close(*files: BinaryIO) -> None:
    for file in files:
        with suppress(OSError):  # what a full disk did not take was told before
            file.close()
