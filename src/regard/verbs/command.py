"""End of a verb: results, or an error and an exit code."""

from __future__ import annotations

import copy
import errno
import gc
import io
import os
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

import typer
from typer.core import TyperCommand, TyperGroup

from regard.errors import DataError, DiskFull, OutputLost, RegardError, make_printable

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_MAX_MESSAGE = 4000
_REFUSALS = (
    errno.ENAMETOOLONG,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ELOOP,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EIO,
    errno.EFBIG,
)
"""Errors of the system about a path, whoever opened it: there is no more to say than their own words."""
_BROKEN_PIPE = 141
"""Exit code by which shells report a program that SIGPIPE ended."""


def select_verb(app: typer.Typer, asked: Sequence[str]) -> typer.Typer:
    """Return an app with only the verb that was asked for; building the options of all verbs takes longer.

    Without a verb, or with an unknown one, all stay, so that the help lists them.
    """
    commands = [each for each in app.registered_commands if each.name in asked]
    groups = [each for each in app.registered_groups if each.name in asked]
    if not commands and not groups:
        return app
    only = copy.copy(app)
    only.registered_commands, only.registered_groups = commands, groups
    return only


class _Printable:
    """Escapes what messages about wrong options quote from the command line, as `say` does."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().make_context(*args, **kwargs)  # type: ignore[misc]
        except Exception as error:
            if isinstance(message := getattr(error, "message", None), str):
                error.message = "\n".join(map(make_printable, message.split("\n")))  # type: ignore[attr-defined]
            raise


class Verbs(_Printable, TyperGroup):
    """A group of verbs."""


class Verb(_Printable, TyperCommand):
    """A verb whose errors become one line on stderr and an exit code; --debug shows the traceback.

    Handling them around `app()` would be too late: typer handles Ctrl-C and broken pipes itself.
    """

    def invoke(self, ctx: Any) -> object:
        gc.enable()
        try:
            done: object = super().invoke(ctx)
            sys.stdout.flush()  # now, while an error can still be reported
        except typer.Exit:
            raise
        except (SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # a panic of a library is not an Exception
            raise typer.Exit(report(error)) from None
        finally:
            _flush(sys.stderr)
        return done


class StandardOutput(io.FileIO):
    """Standard output. What cannot be written to it is an error of its own, not one of many that an OSError may mean."""

    def write(self, data: ReadableBuffer, /) -> int | None:  # type: ignore[override]
        try:
            return super().write(data)
        except BrokenPipeError:  # the reader of our output has left
            raise OutputLost("", _BROKEN_PIPE) from None
        except OSError as error:
            why = "standard output is closed" if error.errno == errno.EBADF else error.strerror
            code = DiskFull.exit_code if error.errno in (errno.ENOSPC, errno.EDQUOT) else OutputLost.exit_code
            raise OutputLost(f"the output cannot be written: {why}", code) from None


def watch_output(stream: TextIO) -> TextIO:
    """Return the stream such that a failed write raises OutputLost; unchanged if it is no file."""
    try:
        number = stream.fileno()
    except OSError:
        return stream
    raw = io.BufferedWriter(StandardOutput(number, "wb", closefd=False))
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", line_buffering=stream.isatty())


def report(error: BaseException) -> int:
    """Print the message of an error on stderr; returns the exit code."""
    message, code = _describe(error)
    if message and "--debug" in sys.argv:
        traceback.print_exc()
    if message:
        say(message)
    _flush(sys.stdout)
    return code


def say(text: str) -> None:
    """Print a line on stderr. If that is not possible, results and exit code say enough."""
    with suppress(OSError):
        print(f"regard: {_shorten(make_printable(text))}", file=sys.stderr, flush=True)


class ProgressLine:
    """One line of progress on stderr: rewritten at a terminal, and printed now and then in a pipe."""

    def __init__(self) -> None:
        self._terminal = sys.stderr is not None and sys.stderr.isatty()
        self._shown, self._began, self._what = time.monotonic(), time.monotonic(), ""
        self._width = 0

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._clear()

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if what != self._what:
            self._what, self._began = what, now
        if now - self._shown < (0.2 if self._terminal else 10.0):
            return
        self._shown = now
        left = (now - self._began) / max(done, 1) * (total - done)
        text = f"{what}: {done:,} of {total:,}, about {left:.0f} s left"
        if not self._terminal:
            say(text)
            return
        with suppress(OSError):
            print(f"\r{text:<{self._width}}", end="", file=sys.stderr, flush=True)
        self._width = len(text)

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._clear()
        say(text)

    def _clear(self) -> None:
        if self._width:
            with suppress(OSError):
                print(f"\r{'':<{self._width}}\r", end="", file=sys.stderr, flush=True)
            self._width = 0


def _describe(error: BaseException) -> tuple[str, int]:
    """The message of an error for users, and the exit code."""
    from regard.files.storage import LACKS

    if isinstance(error, RegardError):
        return str(error), error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", 130
    if isinstance(error, MemoryError):
        return _describe_lack(OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)))
    if isinstance(error, OSError) and error.errno in LACKS:
        return _describe_lack(error)
    if isinstance(error, OSError) and error.errno in _REFUSALS and error.filename is not None:
        return f"{_name(error)}{error.strerror}", DataError.exit_code
    return f"unexpected {type(error).__name__}: {error}; run again with --debug to see where", 1


def _describe_lack(error: OSError) -> tuple[str, int]:
    """Describe what the machine lacks and what to do, and return the exit code."""
    from regard.files.storage import ADVICE

    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    advice = "make space and run the same command again" if full else ADVICE[error.errno or errno.ENOMEM]
    return f"{_name(error)}{error.strerror}; {advice}", DiskFull.exit_code if full else RegardError.exit_code


def _name(error: OSError) -> str:
    """The path that an error of the system is about, to begin a message with."""
    return "" if error.filename is None else f"{os.fsdecode(str(error.filename))}: "


def _shorten(text: str) -> str:
    """A message of limited length: it may quote a file from a stranger."""
    more = len(text) - _MAX_MESSAGE
    return f"{text[:_MAX_MESSAGE]} … and {more} more characters" if more > 0 else text


def _flush(stream: TextIO) -> None:
    """Flush a stream, if that is still possible."""
    try:
        stream.flush()
    except (OSError, OutputLost):
        _discard(stream)


def _discard(stream: TextIO) -> None:
    """Discard what is still buffered: writing it would fail again when Python exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
