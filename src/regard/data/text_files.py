"""Checked lines of text files.

A line that is not valid text becomes a `BadLine` with file, line and byte. Only `\\n` and `\\r\\n` end a line; Unicode's other
separators are ordinary characters, so line numbers are the same in all tools. Only one line is in memory at a time, and of an
endless line only its beginning.
"""

from __future__ import annotations

import codecs
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from regard.errors import DataError
from regard.files.storage import explain_errors
from regard.files.user_file import UNREADABLE, decompress, open_user_file

PIECE = 1 << 20
"""Number of bytes that are read at a time."""
MAX_LINE_BYTES = 100_000
"""Maximum number of bytes in a line of a parallel corpus: a longer line is not a sentence, but a file without line breaks."""


@dataclass(frozen=True)
class BadLine:
    """A line that is not valid text: the kind of fault, a message, and the text as far as it can be decoded."""

    kind: str
    message: str
    text: str | None = None


def read_lines(path: str | Path) -> Iterator[str]:
    """Yield the lines of a text file without line ends; a bad line raises an error."""
    return map(strip_line_end, raise_on_bad(iter_lines(path)))


def read_text(path: str | Path) -> str:
    """Return the text of a file, with line ends; a bad line raises an error."""
    return "".join(raise_on_bad(iter_lines(path)))


def strip_line_end(line: str) -> str:
    """Return a line without its line end."""
    return line[: -2 if line.endswith("\r\n") else -1] if line.endswith("\n") else line


def raise_on_bad(found: Iterator[str | BadLine]) -> Iterator[str]:
    """Yield the lines; a bad one raises an error."""
    for line in found:
        if isinstance(line, BadLine):
            raise DataError(f"{line.message}; fix the line")
        yield line


def iter_text(path: Path, file: BinaryIO, copy: BinaryIO | None = None) -> Iterator[tuple[int, str]]:
    """Yield the text of an open file in pieces that end with lines, unless these are very long, and the place of each in bytes.

    Text that is not valid raises an error with its line. `copy` gets all bytes.
    """
    decoder, place, line, rest = codecs.getincrementaldecoder("utf-8")(), 0, 1, b""
    while True:
        try:
            raw = file.read(PIECE)
            raw += file.readline(PIECE) if raw else b""
        except UNREADABLE as error:
            raise DataError(f"{path} cannot be read past line {line - 1}: {error}; copy or compress it again") from None
        if copy is not None:
            with explain_errors("unpack a corpus", Path(tempfile.gettempdir()), needed=len(raw)):
                copy.write(raw)
        if place == 0 and raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise DataError(f"{path}, line 1: not UTF-8 at byte 0: this looks like UTF-16; convert the file (iconv)")
        held = rest + raw
        try:
            text = decoder.decode(raw, final=not raw)
        except UnicodeDecodeError as error:
            where = f"{path}, line {line + held[: error.start].count(10)}"
            got = held[error.start : error.start + 4].hex(" ")
            raise DataError(
                f"{where}: not UTF-8 at byte {place + error.start}: got {got}; convert the file (iconv); fix the line"
            ) from None
        rest = decoder.getstate()[0]
        if 0 in raw:
            where = f"{path}, line {line + held[: held.index(0)].count(10)}"
            raise DataError(f"{where}: a NUL at byte {place + held.index(0)}: this is not text; fix the line")
        marked = place == 0 and text.startswith("\ufeff")
        if len(text) > marked:
            yield place + 3 * marked, text[marked:]
        if not raw:
            break
        place += len(held) - len(rest)
        line += text.count("\n")
    if not place:
        raise DataError(f"{path} is empty")


def iter_lines(path: str | Path, max_bytes: int | None = None) -> Iterator[str | BadLine]:
    """Yield the decoded lines of a text file with their line ends; a `BadLine` for those that are too long or not text."""
    path = Path(path)
    number = position = 0
    with _open(path) as file:
        try:
            while raw := file.readline(-1 if max_bytes is None else max_bytes + 1):
                number += 1
                where = f"{path}, line {number}"
                if max_bytes is not None and len(raw) > max_bytes and not raw.endswith(b"\n"):
                    yield BadLine("a line that is too long", f"{where}: more than {max_bytes:,} bytes in a line")
                    position += len(raw) + _skip_line(file)
                    continue
                if number == 1 and raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
                    raise DataError(f"{where}: not UTF-8 at byte 0: this looks like UTF-16; convert the file (iconv)")
                text = _decode_line(raw, where, position)
                yield text.removeprefix("\ufeff") if number == 1 and isinstance(text, str) else text
                position += len(raw)
        except UNREADABLE as error:
            raise DataError(f"{path} cannot be read past line {number}: {error}; copy or compress it again") from None
    if not number:
        raise DataError(f"{path} is empty")


def _decode_line(raw: bytes, where: str, position: int) -> str | BadLine:
    """Decode a line that starts at byte `position`."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        got = raw[error.start : error.start + 4].hex(" ")
        said = f"{where}: not UTF-8 at byte {position + error.start}: got {got}; convert the file (iconv)"
        return BadLine("not UTF-8", said, raw.decode(errors="replace"))
    if "\0" in text:
        return BadLine("a NUL", f"{where}: a NUL at byte {position + raw.index(0)}: this is not text", text)
    return text


def _skip_line(file: BinaryIO) -> int:
    """Skip the rest of a line and return its number of bytes."""
    passed = 0
    while part := file.readline(1 << 16):
        passed += len(part)
        if part.endswith(b"\n"):
            break
    return passed


@contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    with open_text(path) as (file, _):
        yield file


@contextmanager
def open_text(path: Path) -> Iterator[tuple[BinaryIO, bool]]:
    """Open a regular file, decompressed if it starts like gzip, whatever its name; and say whether it is."""
    with open_user_file(path) as file:
        opened = decompress(file, path, ("gzip",))
        yield opened, opened is not file
