"""How a verb ends: with its results, or with one line on stderr and an exit code; with neither, if its reader has gone."""

from __future__ import annotations

import errno
import os
import select
import sys
import traceback
from contextlib import suppress
from typing import Any, TextIO

import typer
from typer.core import TyperCommand

from regard.errors import DiskFull, RegardError

_LONG = 4000


class Verb(TyperCommand):
    """A verb; what goes wrong in it becomes one line on stderr and an exit code. A traceback is for --debug.

    Around `app()` it would be too late: typer has answers of its own to Ctrl-C and to a reader that has gone.
    """

    def invoke(self, ctx: Any) -> Any:
        try:
            done = super().invoke(ctx)
            sys.stdout.flush()  # now, while an error can still be told
        except typer.Exit:
            raise
        except (Exception, KeyboardInterrupt) as error:
            if isinstance(error, BrokenPipeError) and _deserted(sys.stdout):  # the reader of our output has had enough
                _drop(sys.stdout)
                raise typer.Exit(0) from None
            if "--debug" in sys.argv:
                traceback.print_exc()
            said, code = _told(error)
            say(said)
            raise typer.Exit(code) from None
        finally:
            _empty(sys.stderr)
        return done


def say(text: str) -> None:
    """A line on stderr. Where nobody reads it or there is no room for it, results and exit code say enough."""
    with suppress(OSError):
        print(f"regard: {_printable(text)}", file=sys.stderr, flush=True)


def _told(error: BaseException) -> tuple[str, int]:
    """What an error says to the user, and the exit code."""
    if isinstance(error, RegardError):
        return str(error), error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", 130
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        _drop(sys.stdout)
        return f"the output cannot be written: {error.strerror}", DiskFull.exit_code
    return f"unexpected {type(error).__name__}: {error}\nRun again with --debug to see where.", 1


def _printable(said: str) -> str:
    """A message that may quote a file which somebody sent: nothing in it moves the cursor, and it fits on a screen."""
    more = f" … and {len(said) - _LONG} characters more" if len(said) > _LONG else ""
    shown = (c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in said[:_LONG])
    return "".join(shown) + more


def _deserted(stream: TextIO) -> bool:
    """Whether nobody is at the other end of a pipe any more."""
    ends = select.poll()
    ends.register(stream.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in ends.poll(0))


def _empty(stream: TextIO) -> None:
    """Write what is still to be written, if it can be."""
    try:
        stream.flush()
    except OSError:
        _drop(stream)


def _drop(stream: TextIO) -> None:
    """Let what is still to be written go nowhere: it would fail once more when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
