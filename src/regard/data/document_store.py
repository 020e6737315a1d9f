"""Documents that stay in their files.

A corpus of any size is read once, to check it and to find its documents, and later piece by piece: a document is a range of
bytes, and only what is asked for is in memory. A compressed file is unpacked to a temporary file without a name.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import BinaryIO, overload

import numpy as np
from numpy.typing import NDArray

from regard.data.documents import DocumentUnit
from regard.data.scratch import ArrayWriter
from regard.data.text_files import iter_text, open_text
from regard.errors import DataError

Sizes = NDArray[np.int64]
MAX_BLANKS = 1 << 16
"""Maximum number of blanks that are recognized at the end of a line in several pieces."""
Span = tuple[int, int]
"""Start and end of a document, in bytes."""


class TextSource:
    """A checked text file, open to be read again; an error if it changes meanwhile."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path, self._file = path, file
        self._state = self._stat()
        weakref.finalize(self, file.close)

    def read(self, start: int, stop: int) -> bytes:
        raw = os.pread(self._file.fileno(), stop - start, start)
        if len(raw) < stop - start or self._stat() != self._state:
            raise DataError(f"{self._path} changed while it was read; run the same command again")
        return raw

    def _stat(self) -> tuple[int, int]:
        found = os.fstat(self._file.fileno())
        return found.st_size, found.st_mtime_ns


class Documents(Sequence[str]):
    """Documents that are read on access, as a whole or in part. Sizes and places are in units of the store."""

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: int | slice) -> str | list[str]:
        places = range(len(self))[i]
        if isinstance(places, int):
            return self.read(places, 0, int(self.sizes(places, places + 1)[0]))
        if places.step == 1:
            return self._read(places.start, places.stop)
        return [self[place] for place in places]

    def sizes(self, start: int, stop: int) -> Sizes:
        """Return the sizes of these documents."""
        raise NotImplementedError

    def read(self, document: int, start: int, stop: int) -> str:
        """Return a part of a document; both ends are between characters."""
        raise NotImplementedError

    def align(self, document: int, place: int) -> int:
        """Return the next place between two characters."""
        return place

    def width(self, text: str) -> int:
        """Return the size of a text."""
        raise NotImplementedError

    def _read(self, start: int, stop: int) -> list[str]:
        raise NotImplementedError

    def take(self, start: int, stop: int) -> Documents:
        """Return these documents, without copying them."""
        raise NotImplementedError

    def cut(self, size: int) -> tuple[Documents, Documents]:
        """Return the first `size` of a single document, and the rest of it."""
        raise NotImplementedError


class HeldDocuments(Documents):
    """Documents in memory; sizes are in characters."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts

    def __len__(self) -> int:
        return len(self._texts)

    def sizes(self, start: int, stop: int) -> Sizes:
        return np.array([len(text) for text in self._texts[start:stop]], np.int64)

    def read(self, document: int, start: int, stop: int) -> str:
        return self._texts[document][start:stop]

    def width(self, text: str) -> int:
        return len(text)

    def _read(self, start: int, stop: int) -> list[str]:
        return list(self._texts[start:stop])

    def take(self, start: int, stop: int) -> Documents:
        return HeldDocuments(self._texts[start:stop])

    def cut(self, size: int) -> tuple[Documents, Documents]:
        return HeldDocuments([self._texts[0][:size]]), HeldDocuments([self._texts[0][size:]])


class FileDocuments(Documents):
    """Documents in a text file; sizes are in bytes. `strip` removes line ends around a document."""

    def __init__(self, source: TextSource, starts: Sizes, ends: Sizes, *, strip: bool) -> None:
        self._source, self._starts, self._ends, self._strip = source, starts, ends, strip

    def __len__(self) -> int:
        return len(self._starts)

    def sizes(self, start: int, stop: int) -> Sizes:
        return np.asarray(self._ends[start:stop] - self._starts[start:stop])

    def read(self, document: int, start: int, stop: int) -> str:
        begin, end = int(self._starts[document]), int(self._ends[document])
        text = self._source.read(begin + start, min(begin + stop, end)).decode()
        return self._stripped(text) if start == 0 and begin + stop >= end else text

    def align(self, document: int, place: int) -> int:
        begin = int(self._starts[document]) + place
        following = self._source.read(begin, min(begin + 4, int(self._ends[document])))
        return place + next((i for i, byte in enumerate(following) if byte & 0xC0 != 0x80), len(following))

    def width(self, text: str) -> int:
        return len(text.encode())

    def _read(self, start: int, stop: int) -> list[str]:
        if start >= stop:
            return []
        first, last = int(self._starts[start]), int(self._ends[stop - 1])
        raw = self._source.read(first, last)
        spans = zip((self._starts[start:stop] - first).tolist(), (self._ends[start:stop] - first).tolist(), strict=True)
        return [self._stripped(raw[a:b].decode()) for a, b in spans]

    def take(self, start: int, stop: int) -> Documents:
        return FileDocuments(self._source, self._starts[start:stop], self._ends[start:stop], strip=self._strip)

    def cut(self, size: int) -> tuple[Documents, Documents]:
        begin, end = int(self._starts[0]), int(self._ends[0])
        bounds = [begin, begin + size, end]
        first, rest = (
            FileDocuments(self._source, np.array([a]), np.array([b]), strip=False) for a, b in pairwise(bounds)
        )
        return first, rest

    def _stripped(self, text: str) -> str:
        return text.strip("\r\n") if self._strip else text


class JoinedDocuments(Documents):
    """The documents of several stores as one sequence."""

    def __init__(self, parts: Sequence[Documents]) -> None:
        self._parts, self._ends = parts, [0, *accumulate(map(len, parts))]

    def __len__(self) -> int:
        return self._ends[-1]

    def sizes(self, start: int, stop: int) -> Sizes:
        found = [part.sizes(a, b) for part, a, b in self._covered(start, stop)]
        return np.concatenate([np.empty(0, np.int64), *found])

    def read(self, document: int, start: int, stop: int) -> str:
        which = bisect_right(self._ends, document) - 1
        return self._parts[which].read(document - self._ends[which], start, stop)

    def align(self, document: int, place: int) -> int:
        which = bisect_right(self._ends, document) - 1
        return self._parts[which].align(document - self._ends[which], place)

    def width(self, text: str) -> int:
        return self._parts[0].width(text)

    def _read(self, start: int, stop: int) -> list[str]:
        return [text for part, a, b in self._covered(start, stop) for text in part[a:b]]

    def take(self, start: int, stop: int) -> Documents:
        return JoinedDocuments([part.take(a, b) for part, a, b in self._covered(start, stop)])

    def _covered(self, start: int, stop: int) -> Iterator[tuple[Documents, int, int]]:
        for part, first, last in zip(self._parts, self._ends, self._ends[1:], strict=False):
            if max(start, first) < min(stop, last):
                yield part, max(start, first) - first, min(stop, last) - first


def open_documents(path: str | Path, unit: DocumentUnit) -> FileDocuments:
    """Check a text file and find its documents, without blank ones."""
    path = Path(path)
    starts, ends = ArrayWriter(np.int64), ArrayWriter(np.int64)
    with open_text(path) as (file, packed), ExitStack() as stack:
        copy: BinaryIO | None = stack.enter_context(tempfile.TemporaryFile(prefix="regard-")) if packed else None
        for found in _in_blocks(FINDERS[unit](iter_text(path, file, copy))):
            starts.add(found[:, 0])
            ends.add(found[:, 1])
        if copy is not None:
            copy.flush()
        source = TextSource(path, copy or os.fdopen(os.dup(file.fileno()), "rb"))
        stack.pop_all()  # the copy is good
    return FileDocuments(source, starts.array(), ends.array(), strip=unit != "file")


def _in_blocks(spans: Iterator[Span], size: int = 1 << 14) -> Iterator[NDArray[np.int64]]:
    while held := list(islice(spans, size)):
        yield np.array(held, np.int64)


def _find_file(pieces: Iterator[tuple[int, str]]) -> Iterator[Span]:
    """The whole file."""
    first = end = None
    for start, text in pieces:
        first = start if first is None else first
        end = start + len(text.encode())
    if first is not None and end is not None:
        yield first, end


def _find_lines(pieces: Iterator[tuple[int, str]]) -> Iterator[Span]:
    """The lines that are not blank."""
    return ((line.start, line.stop) for line in _lines(pieces) if line.full)


def _find_blank(pieces: Iterator[tuple[int, str]]) -> Iterator[Span]:
    """Yield what is between blank lines; blanks at the end of the line before a blank one do not belong to it."""
    first, end, last, blanks, leading, full = -1, 0, 0, 0, list[int](), False
    for line in _lines(pieces):
        if line.ended and line.blanks == line.stop - line.start:
            blanks += 1
            leading += [line.start] if not last else []
            continue
        if first >= 0 and blanks:
            if full:
                yield first, end
            first, full = -1, False
        if first < 0:
            first = leading[0] if not last and len(leading) == 1 else line.start  # one line break does not divide
        full, end, last, blanks = full or line.full, line.stop - line.blanks, line.stop, 0
    if full:
        yield first, end if blanks else last


@dataclass(frozen=True, slots=True)
class _Line:
    """Start and stop of a line, whether it has text, the number of blanks at its end, and whether a line break follows."""

    start: int
    stop: int
    full: bool
    blanks: int
    ended: bool


def _lines(pieces: Iterator[tuple[int, str]]) -> Iterator[_Line]:
    """Yield the lines of a text that comes in pieces."""
    begin, place, full, tail = -1, 0, False, ""
    for place, text in pieces:
        *lines, rest = text.split("\n")
        begin = place if begin < 0 else begin
        for line in lines:
            place += len(line.encode())
            blanks = len(tail + line) - len((tail + line).removesuffix("\r").rstrip(" \t"))
            yield _Line(begin, place, full or bool(line.strip()), blanks, ended=True)
            place += 1
            begin, full, tail = place, False, ""
        place += len(rest.encode())
        full = full or bool(rest.strip())
        tail = (tail + rest)[len((tail + rest).rstrip(" \t\r")) :][-MAX_BLANKS:]
    if place > begin >= 0:
        yield _Line(begin, place, full, 0, ended=False)


FINDERS: dict[DocumentUnit, Callable[[Iterator[tuple[int, str]]], Iterator[Span]]] = {
    "file": _find_file,
    "line": _find_lines,
    "blank": _find_blank,
}
