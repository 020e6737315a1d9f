"""Opening the files that a user names: regular, bounded.

A path on a command line, in a recipe or in a line of input may lead anywhere: to a pipe that nobody writes to, to a device
without an end, to a small archive of a huge file. All of them are opened here, by three rules:

- Only a regular file is opened. Nothing waits for a pipe, and a file can be read again when a run is resumed. Standard input
  of `regard run` is the one stream that is read, line by line.
- A file that is read whole has a limit, which is checked before memory is allocated.
- A compressed file is decompressed piece by piece, and refused once it unpacks to far more than its size.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from regard.errors import DataError, RegardError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAX_RATIO, MIN_UNPACKED = 200, 1_000_000_000
"""Maximum ratio of unpacked to compressed size, and the unpacked size in bytes up to which any ratio is allowed."""
MAX_XZ_MEMORY = 256_000_000
"""Bytes that an xz decoder may use; `xz -9` needs 65 MB."""
UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError)
"""Errors that reading a damaged compressed file raises."""
Compression = Literal["gzip", "xz", "bzip2"]
MAGIC: dict[Compression, bytes] = {"gzip": b"\x1f\x8b", "xz": b"\xfd7zXZ\x00", "bzip2": b"BZh"}


@contextmanager
def open_regular(path: Path | str, *, follow: bool = True) -> Iterator[BufferedReader]:
    """Open a regular file, or raise an OSError; never waits for a pipe. Unless `follow`, the file may not be a link."""
    mode = Path(path).stat(follow_symlinks=follow).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):  # not even opened: that alone can start a device
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW))
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):  # replaced since
            raise OSError(errno.EINVAL, "Not a regular file", str(path))
        with open(handle, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(handle)


@contextmanager
def open_user_file(
    path: Path | str, error: type[RegardError] = DataError, *, what: str = ""
) -> Iterator[BufferedReader]:
    """Open a file that a user named, or raise this error, which calls it `what`."""
    with ExitStack() as opened:
        try:
            file = opened.enter_context(open_regular(path))
        except (OSError, ValueError) as fault:  # ValueError: a NUL in the path
            raise error(_describe(path, what, fault)) from None
        yield file


def read_user_file(
    path: Path | str,
    limit: int,
    error: type[RegardError] = DataError,
    *,
    what: str = "",
    unpack: tuple[Compression, ...] = (),
) -> bytes:
    """Read a file that a user named, of at most `limit` bytes, also after it is unpacked."""
    with open_user_file(path, error, what=what) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            data = decompress(file, path, unpack, error).read(limit + 1) if size <= limit else b""
        except UNREADABLE as fault:
            raise error(_describe(path, what, fault)) from None
    if max(size, len(data)) > limit:
        raise error(f"{path} is refused: it has more than {limit:,} bytes")
    return data


def decompress(
    file: BufferedReader,
    path: Path | str,
    kinds: tuple[Compression, ...] = ("gzip", "xz", "bzip2"),
    error: type[RegardError] = DataError,
) -> BufferedReader:
    """The content of a file, decompressed if it begins like one of these kinds, whatever its name."""
    start = file.peek(8)
    kind = next((kind for kind in kinds if start.startswith(MAGIC[kind])), None)
    if kind is None:
        return file
    inner: io.IOBase
    if kind == "gzip":
        inner = gzip.GzipFile(fileobj=file)
    elif kind == "bzip2":
        inner = bz2.BZ2File(file)
    else:
        inner = _XzReader(file)
    size = os.fstat(file.fileno()).st_size
    return BufferedReader(_BoundedReader(inner, path, max(MIN_UNPACKED, MAX_RATIO * size), error))


class _BoundedReader(io.RawIOBase):
    """Reads a decompressor until it has given `limit` bytes."""

    def __init__(self, inner: io.IOBase, path: Path | str, limit: int, error: type[RegardError]) -> None:
        self._inner, self._path, self._left, self._error = cast(io.RawIOBase, inner), path, limit, error

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        count = self._inner.readinto(buffer) or 0
        self._left -= count
        if self._left < 0:
            raise self._error(
                f"{self._path} is refused: it unpacks to more than {MAX_RATIO} times its size; unpack it yourself, if you "
                "trust it"
            )
        return count


class _XzReader(io.RawIOBase):
    """Reads an xz file with a limit on the decoder's memory, which `lzma.open` lacks."""

    def __init__(self, file: BufferedReader) -> None:
        self._file, self._decoder = file, lzma.LZMADecompressor(memlimit=MAX_XZ_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        room = memoryview(buffer).cast("B")
        while True:
            if self._decoder.eof:  # perhaps another stream follows
                rest = (self._decoder.unused_data or self._file.read(1 << 16)).lstrip(b"\0")
                if not rest:
                    return 0
                self._decoder = lzma.LZMADecompressor(memlimit=MAX_XZ_MEMORY)
            elif self._decoder.needs_input:
                rest = self._file.read(1 << 16)
                if not rest:
                    raise EOFError("it ends before the end-of-stream marker")
            else:
                rest = b""
            if data := self._decoder.decompress(rest, len(room)):
                room[: len(data)] = data
                return len(data)


def _describe(path: Path | str, what: str, fault: Exception) -> str:
    """Tell why a file cannot be read, and what to do."""
    if isinstance(fault, OSError) and fault.errno == errno.EINVAL:
        if Path(path).is_dir():
            return f"{path} is a directory; name a file in it"
        return f"{path} is a pipe or device; save its output to a file, which can be read again"
    return f"cannot read {' '.join(filter(None, (what, str(path))))}: {getattr(fault, 'strerror', None) or fault}"
