"""`regard` and `python -m regard`: the command line, speaking UTF-8 whatever the locale says."""

from __future__ import annotations

import io
import os
import sys


def main() -> None:
    """The entry point; ends the process with one of the exit codes of `errors.py`."""
    from regard.cli import app
    from regard.machine import wait_politely

    wait_politely()
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    app(prog_name="regard")


def _open_what_is_closed() -> None:
    """Let a stream that the caller closed (`2>&-`) lead nowhere.

    Else the next file that we open would be given its number, and whatever a library says on stderr would be written into it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w", closefd=False))  # noqa: SIM115  (it stays open)


if __name__ == "__main__":
    main()
