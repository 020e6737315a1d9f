"""Calls into `tokenizers`, whose panics become errors.

A panic of Rust code arrives as an exception that is no `Exception`, after Rust has printed it to stderr, with a backtrace if
the environment asks for one. So stderr is a file while such a call runs: after a panic the file is forgotten, since our error
says the same in one line; otherwise what other threads wrote meanwhile is passed on. That costs three system calls.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar

from regard.errors import RegardError

T = TypeVar("T")
PANIC = "PanicException"
_STDERR = 2
_NO_THREADS = "global thread pool has not been initialized"
_MAX_REASON = 300  # characters of the library's own message
_REASONS = {"retry-limit-in-match": "one of its patterns takes too many steps to match"}


class _Stderr:
    """The file descriptor of stderr, held back while any thread is inside a native call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        """Start anew, as a forked child must: its parent's file is not its own."""
        self._lock = threading.Lock()
        self._inside, self._panicked = 0, False
        self._real: int | None = None
        self._held: int | None = None

    def hold(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside > 1:
                return
            self._panicked = False
            with suppress(OSError):  # stderr is closed, or there is no room for a file: a panic is then printed
                if self._held is None:
                    self._held = _open_file()
                self._real = os.dup(_STDERR)
                os.dup2(self._held, _STDERR)

    def release(self, panicked: bool) -> None:
        with self._lock:
            self._inside -= 1
            self._panicked |= panicked
            if self._inside or self._real is None or self._held is None:
                return
            real, self._real = self._real, None
            os.dup2(real, _STDERR)
            os.close(real)
            if size := os.lseek(self._held, 0, os.SEEK_CUR):
                os.lseek(self._held, 0, os.SEEK_SET)
                written = os.read(self._held, size)
                os.ftruncate(self._held, 0)
                os.lseek(self._held, 0, os.SEEK_SET)
                if not self._panicked:
                    with suppress(OSError):
                        os.write(_STDERR, written)


_stderr = _Stderr()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_stderr.forget)


class translate_errors:
    """Convert errors of the library (bare `Exception`s, and panics) to ours; nothing of a panic is printed.

    A call that reads what may take long is not `quiet` from its beginning: progress is shown until `quiet_after` its lines.
    """

    def __init__(self, error: type[RegardError], message: str, *, quiet: bool = True) -> None:
        self._error, self._message, self._quiet = error, message, quiet

    def __enter__(self) -> Self:
        if self._quiet:
            _stderr.hold()
        return self

    def quiet_after(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items, and hold stderr back once they are consumed."""
        yield from items
        self._quiet = True
        _stderr.hold()

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        panicked = kind is not None and kind.__name__ == PANIC
        if self._quiet:
            _stderr.release(panicked)
        if panicked or kind is Exception:
            if _NO_THREADS in str(fault):
                raise RegardError(
                    "the tokenizers library cannot start its threads; free memory, or allow this process more (ulimit -v, -u)"
                ) from None
            raise self._error(f"{self._message}: {_reason(str(fault))}") from None


def _reason(said: str) -> str:
    known = next((words for sign, words in _REASONS.items() if sign in said), None)
    return known or said.partition("\n")[0][:_MAX_REASON]


def _open_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("stderr")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
