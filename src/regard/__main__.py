"""`regard` and `python -m regard`: the command line, speaking UTF-8 whatever the locale says."""

from __future__ import annotations

import io
import sys


def main() -> None:
    """The entry point; ends the process with one of the exit codes of `errors.py`."""
    from regard.cli import app
    from regard.machine import wait_politely

    wait_politely()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    app(prog_name="regard")


if __name__ == "__main__":
    main()
