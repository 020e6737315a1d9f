"""Storage: file operations that survive a power cut.

Every byte of a checkpoint or model folder goes through a `Storage`. A file is safe once it was synced and the folder that names
it was synced, too. Tests use a storage in memory that forgets whatever was not synced.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from regard.errors import CheckpointError, DiskFull, SpecError
from regard.files.user_file import open_regular
from regard.machine import free_memory

LARGE = 1_000_000_000
"""Bytes of a file above which free memory is checked before reading."""


class Storage(Protocol):
    """Primitive operations on files and folders. They raise OSError, as the operating system does."""

    def write(self, path: Path, data: bytes) -> None:
        """Create a file with these bytes."""

    def read(self, path: Path, limit: int) -> bytes:
        """Read at most `limit` bytes of a file; links and devices are refused."""

    def map(self, path: Path) -> mmap.mmap | None:
        """A file read into pages of its own, as strictly as `read`; None where there are no such pages. It must not be empty.

        Its reader can release them one by one. They are a copy: whoever reads pages of a file itself is killed (SIGBUS) when
        another program shortens the file.
        """

    def digest(self, path: Path) -> tuple[int, str]:
        """The size and SHA-256 of a file, read in blocks and as strictly as `read`."""

    def sync(self, path: Path) -> None:
        """Return when a file's bytes, or the names in a folder, would survive a power cut."""

    def mkdir(self, path: Path) -> None:
        """Create a folder in an existing one."""

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file or folder atomically; what is neither a file, a link nor a folder is not replaced."""

    def remove(self, path: Path) -> None:
        """Remove a file, or a folder with its contents."""

    def list(self, path: Path) -> list[str]:
        """The names in a folder, sorted."""

    def free(self, path: Path) -> int:
        """Free bytes where this path is, or would be."""


class Disk:
    """The file system of this machine."""

    def write(self, path: Path, data: bytes) -> None:
        with path.open("xb") as file:
            file.write(data)

    def read(self, path: Path, limit: int) -> bytes:
        with open_regular(path, follow=False) as file:
            size = min(limit, os.fstat(file.fileno()).st_size + 1)  # allocate for the file, not for the limit
            _check_memory(size, path)
            return file.read(size)

    def map(self, path: Path) -> mmap.mmap | None:
        with open_regular(path, follow=False) as file:
            size = os.fstat(file.fileno()).st_size
            if not size:
                raise OSError(errno.EINVAL, "it is empty", str(path))
            _check_memory(size, path)
            pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            with memoryview(pages) as room:
                done = 0
                while done < size and (count := file.readinto(room[done:])):
                    done += count
            if done < size:
                raise OSError(errno.EIO, "it became shorter while it was read", str(path))
            return pages

    def digest(self, path: Path) -> tuple[int, str]:
        with open_regular(path, follow=False) as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
            return file.tell(), found

    def sync(self, path: Path) -> None:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        except OSError as error:
            # Some network file systems cannot sync a folder: nothing more can be done there.
            if not (path.is_dir() and error.errno in (errno.EINVAL, errno.ENOTSUP)):
                raise
        finally:
            os.close(handle)

    def mkdir(self, path: Path) -> None:
        path.mkdir()

    def rename(self, old: Path, new: Path) -> None:
        with suppress(FileNotFoundError):
            kind = stat.S_IFMT(new.stat(follow_symlinks=False).st_mode)
            if kind not in (stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR):  # a device or a pipe would be gone
                raise OSError(errno.EINVAL, "Not a regular file", str(new))
        old.rename(new)

    def remove(self, path: Path) -> None:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()

    def list(self, path: Path) -> list[str]:
        return sorted(entry.name for entry in path.iterdir())

    def free(self, path: Path) -> int:
        for place in (path, *path.parents):
            with suppress(OSError):
                return shutil.disk_usage(place).free
        return 0


DISK = Disk()


def _check_memory(size: int, path: Path) -> None:
    if size > LARGE and size > (free_memory() or size):
        raise OSError(errno.ENOMEM, f"{format_bytes(size)}, more than the free memory", str(path))


def make_folder(storage: Storage, path: Path) -> None:
    """Create a folder and its missing parents, and sync them."""
    try:
        storage.mkdir(path)
    except FileExistsError:
        return
    except FileNotFoundError:
        make_folder(storage, path.parent)
        storage.mkdir(path)
    storage.sync(path.parent)


def write_file(path: Path, data: bytes | str, *, storage: Storage = DISK) -> None:
    """Replace a file atomically: a reader, also after a power cut, finds the old bytes or the new ones."""
    data = data.encode() if isinstance(data, str) else data
    partial = path.with_name(f".{path.name}.partial")
    with explain_errors(f"write {path.name}", path.parent, needed=len(data), storage=storage):
        if partial.name in storage.list(path.parent):  # left by a crash
            storage.remove(partial)
        try:
            storage.write(partial, data)
            storage.sync(partial)
            storage.rename(partial, path)
        except OSError:
            with suppress(OSError):  # it may have been renamed, or never been there
                storage.remove(partial)
            raise
        storage.sync(path.parent)


STREAMS = tuple(map(Path, ("/dev/stdout", "/dev/stderr", "/dev/fd", "/proc")))
"""Names of open files, which are not replaced: `/dev/stdout` may be a file, but one that others are writing, too."""


def write_output(path: Path | str, data: bytes | str) -> None:
    """Write a file that a user named: a regular file is replaced atomically, a pipe or device is written to.

    A link is followed, as `tee` and `>` do: its target is written, and it stays a link.
    """
    path, data = Path(path), data.encode() if isinstance(data, str) else data
    check_output(path)
    if not is_stream(path):
        write_file(Path(os.path.realpath(path)), data)
        return
    with explain_errors(f"write {path.name}", path.parent, needed=len(data)), path.open("ab", buffering=0) as file:
        left = memoryview(data)
        while left:  # opening waited until somebody reads a pipe
            left = left[file.write(left) :]


def check_output(path: Path | str) -> None:
    """Refuse a folder where a file should be written."""
    if Path(path).is_dir():
        raise SpecError(f"{path} is a directory; name a file in it")


def is_stream(path: Path | str) -> bool:
    """True if a path leads to a pipe, device or socket, or to a file by way of the streams of a process."""
    path = Path(os.path.abspath(path))  # noqa: PTH100  (resolve() would follow /dev/stdout)
    with suppress(OSError):
        if not stat.S_ISREG(path.stat().st_mode):
            return True
    return any(path.is_relative_to(stream) for stream in STREAMS)


ADVICE = {
    errno.EACCES: "you do not have permission: change the folder's owner or mode, or choose another folder",
    errno.EPERM: "you do not have permission: change the folder's owner or mode, or choose another folder",
    errno.EROFS: "the file system is read-only: choose another folder",
    errno.EIO: "the disk reported an error: check it before continuing",
    errno.ENOMEM: "the files are intact: close other programs, or use a machine with more memory",
    errno.EMFILE: "raise the limit of open files (ulimit -n), and run the same command again",
    errno.ENFILE: "close other programs, and run the same command again",
    errno.ENOLCK: "this file system does not support locks: choose a folder on a local disk",
    errno.ENOTSUP: "this file system does not support this: choose a folder on a local disk",
    errno.ENOTDIR: "there is a file where a folder should be: move it, or choose another folder",
}


LACKS = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors of the system about what this machine lacks, which say nothing about the file."""


def is_lack(error: BaseException) -> bool:
    """Whether an error, or the one of the system that it explains, is about what this machine lacks."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return isinstance(cause, OSError) and cause.errno in LACKS


@contextmanager
def explain_errors(doing: str, folder: Path, *, needed: int = 0, storage: Storage = DISK) -> Iterator[None]:
    """Turn an OSError into an error that says what failed, where, and what to do."""
    try:
        yield
    except OSError as error:
        said = error.strerror or str(error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            wanted = f"{format_bytes(needed)} needed, " if needed else ""
            raise DiskFull(
                f"not enough disk space to {doing} in {folder} ({said}): {wanted}{format_bytes(storage.free(folder))} free; "
                "make space and run the same command again; everything saved before is intact"
            ) from error
        advice = f"; {ADVICE[error.errno]}" if error.errno in ADVICE else ""
        raise CheckpointError(f"cannot {doing} in {folder} ({said}){advice}") from error


def format_bytes(size: int) -> str:
    """Format a number of bytes: 512 bytes, 1.5 kB, 104.9 MB."""
    if size < 1000:
        return f"{size} bytes"
    value = size / 1000
    for unit in ("kB", "MB", "GB"):
        if value < 999.95:
            return f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
