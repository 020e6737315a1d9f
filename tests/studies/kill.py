"""Kill a study at random moments and see that its table stays the same: `python -m tests.studies.kill 30`.

The parent imports torch once and forks a child for every life. A life runs the same command; it is killed after a random
while, and the last one is left alone. The table must be that of a study that was never killed, to the last digit.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

from regard.studies.run_study import study
from tests.training.small import COPY, TINY

SETTINGS = {**COPY, **TINY, "train.steps": 30, "train.validate_every": 10, "train.save_every": 5}


def kill_often(kills: int, folder: Path, *, seeds: int = 2, processes: int = 0, seed: int = 0) -> str:
    """Run and kill until there were so many kills; what there is to say about them, or AssertionError."""
    draw, said = random.Random(seed), {"kills": 0, "studies": 0, "finished cells kept": 0}
    began = time.monotonic()
    _end_well(_start(folder / "whole", seeds, processes))
    life = 0.6 * (time.monotonic() - began)
    whole = table(folder / "whole")
    while said["kills"] < kills:
        place = folder / f"study-{said['studies']}"
        said["studies"] += 1
        while said["kills"] < kills:
            child = _start(place, seeds, processes)
            time.sleep(draw.uniform(0.05, 1.0) * life)
            before = _cells(place)
            os.kill(child, signal.SIGKILL)
            if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != -signal.SIGKILL:
                break  # it was done before we came
            said["kills"] += 1
            assert all(_cells(place).get(name) == stamp for name, stamp in before.items()), "a finished cell ran again"
            said["finished cells kept"] += len(before)
        _end_well(_start(place, seeds, processes))
        assert table(place) == whole, f"{place} is not the study that was never killed"
    return f"the same table after every kill: {said}"


def table(folder: Path) -> dict[str, Any]:
    """The results of a study without the clock."""
    found: dict[str, Any] = json.loads((folder / "compare.json").read_text())
    return {key: value for key, value in found.items() if key != "timing"}


def _cells(folder: Path) -> dict[str, int]:
    """The finished cells, and when they were written."""
    return {path.name: path.stat().st_mtime_ns for path in (folder / "cells").glob("*.json")}


def _start(folder: Path, seeds: int, processes: int) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        vary = ["model.norm=pre,post"]
        study("compare", "copy", vary=vary, set=SETTINGS, seeds=seeds, out=folder, processes=processes)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _end_well(child: int) -> None:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as _scratch:
        print(kill_often(int(sys.argv[1]), Path(_scratch), processes=int((sys.argv[2:] or ["0"])[0])))
