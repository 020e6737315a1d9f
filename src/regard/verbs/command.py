"""How a verb ends: results, or an error and an exit code."""

from __future__ import annotations

import errno
import os
import select
import sys
import time
import traceback
from contextlib import suppress
from types import TracebackType
from typing import Any, TextIO

import typer
from typer.core import TyperCommand

from regard.errors import DiskFull, RegardError, make_printable

_MAX_MESSAGE = 4000


class Verb(TyperCommand):
    """A verb whose errors become one line on stderr and an exit code; --debug shows the traceback.

    Handling them around `app()` would be too late: typer handles Ctrl-C and broken pipes itself.
    """

    def invoke(self, ctx: Any) -> object:
        try:
            done: object = super().invoke(ctx)
            sys.stdout.flush()  # now, while an error can still be reported
        except typer.Exit:
            raise
        except (SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # a panic of a library is not an Exception
            if isinstance(error, BrokenPipeError) and _has_no_reader(sys.stdout):  # the reader of our output has left
                _discard(sys.stdout)
                raise typer.Exit(0) from None
            if "--debug" in sys.argv:
                traceback.print_exc()
            message, code = _describe(error)
            say(message)
            raise typer.Exit(code) from None
        finally:
            _flush(sys.stderr)
        return done


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
    if isinstance(error, RegardError):
        return str(error), error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", 130
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        _discard(sys.stdout)
        return f"the output cannot be written: {error.strerror}", DiskFull.exit_code
    return f"unexpected {type(error).__name__}: {error}; run again with --debug to see where", 1


def _shorten(text: str) -> str:
    """A message of limited length: it may quote a file from a stranger."""
    more = len(text) - _MAX_MESSAGE
    return f"{text[:_MAX_MESSAGE]} … and {more} more characters" if more > 0 else text


def _has_no_reader(stream: TextIO) -> bool:
    """Whether the other end of a pipe was closed."""
    ends = select.poll()
    ends.register(stream.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in ends.poll(0))


def _flush(stream: TextIO) -> None:
    """Flush a stream, if that is still possible."""
    try:
        stream.flush()
    except OSError:
        _discard(stream)


def _discard(stream: TextIO) -> None:
    """Discard what is still buffered: writing it would fail again when Python exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
