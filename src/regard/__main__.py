"""`regard` and `python -m regard`.

The command line writes UTF-8 whatever the locale says.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys


def main() -> None:
    """The entry point; exits with one of the codes in `errors.py`."""
    gc.disable()  # until a verb begins: imports leave no garbage, and looking for it takes a fifth of their time
    atexit.register(gc.freeze)  # nor is there any to look for at the end
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")  # looking for them reads every installed package
    from regard.cli import app
    from regard.errors import OutputLost
    from regard.machine import wait_politely
    from regard.verbs.command import report, select_verb, watch_output

    wait_politely()
    if "--debug" not in sys.argv:
        os.environ["RUST_BACKTRACE"] = "0"  # an error of a library is one line
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    sys.stdout = watch_output(sys.stdout)
    try:
        try:
            select_verb(app, sys.argv[1:2])(prog_name="regard")
        finally:
            gc.enable()
            sys.stdout.flush()  # --help and --version are printed outside of the verbs
    except OutputLost as error:
        sys.exit(report(error))


def _open_closed_streams() -> None:
    """Redirect streams that the caller closed (`2>&-`) to the null device.

    Otherwise the next opened file would get their number, and what libraries write to stderr would end up in it. A closed
    stdout cannot be written to, so that results do not disappear silently.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if number == 1 else os.O_RDWR)  # gets the lowest free number: this one
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w", closefd=False))  # noqa: SIM115  (it stays open)


if __name__ == "__main__":
    main()
