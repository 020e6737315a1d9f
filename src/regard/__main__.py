"""`regard` and `python -m regard`: run the command line, turn our errors into one line and an exit code."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    """The entry point. No traceback unless --debug."""
    from regard.cli import app
    from regard.errors import RegardError
    from regard.machine import wait_politely

    wait_politely()
    debug = "--debug" in sys.argv
    try:
        app()
    except RegardError as error:
        if debug:
            raise
        print(f"regard: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("regard: interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if debug:
            raise
        print(
            f"regard: unexpected {type(error).__name__}: {error}\nRun again with --debug to see where.", file=sys.stderr
        )
        sys.exit(1)
    sys.exit(0)


if __name__ == "__main__":
    main()
