"""A child process that runs cells of a grid, one by one.

`python -m regard.studies.grid_worker` reads a cell as a line of JSON, runs it and answers with a line. It ends with its parent,
also if that was killed, so that a study that is started again finds its work folders free.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

PARENT_POLL = 0.2
"""Seconds between two checks that the parent lives."""


def main() -> None:
    parent = os.getppid()
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever a job prints is not an answer
    import torch

    torch.set_num_threads(1)
    from regard.registry import load_plugins
    from regard.studies.basis import check_plugins
    from regard.studies.grid import Cell, run_cell

    loaded: set[str] = set()
    for line in sys.stdin:
        asked = json.loads(line)
        load_plugins([Path(name) for name in asked["plugins"] if name not in loaded])
        loaded |= set(asked["plugins"])
        cell, failed = Cell(**asked["cell"]), ""
        try:
            check_plugins(asked["plugins"], cell.basis)
            run_cell(cell, Path(asked["out"]), Path(asked["work"]), keep=asked["keep"])
        except Exception as error:
            failed = f"{type(error).__name__}: {error}"
        print(json.dumps({"failed": failed}), file=answers, flush=True)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_POLL)
    os._exit(1)


if __name__ == "__main__":
    main()
