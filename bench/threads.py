"""What waiting threads cost: training alone and beside one busy program, for three ways to wait. `python -m bench.threads`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from bench.entry import Mode, parse
from bench.race import best_and_median, race
from bench.results import write
from regard.machine import SPINS
from regard.report.table import Table

BUSY = "while True: pass"


WAYS = {
    "as libgomp has it": {},
    "soon asleep (ours)": {"GOMP_SPINCOUNT": SPINS},
    "asleep at once": {"OMP_WAIT_POLICY": "passive"},
}


def speed(way: dict[str, str]) -> float:
    """Target tokens a second of our tiny model when threads wait this way."""
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        os.environ.pop(name, None)
    os.environ.update(way)
    words, rounds = (["--steps", "1", "--smoke"], 1) if Mode.smoke else (["--steps", "6"], 3)
    found = race({"regard": ["bench.train", "tiny", *words, "--worker", "regard"]}, rounds)
    return best_and_median(found["regard"], "tokens_per_s")[1]


def main() -> None:
    parse(argparse.ArgumentParser(prog="python -m bench.threads", description=__doc__))
    rows = []
    for beside in (False, True):
        neighbour = subprocess.Popen([sys.executable, "-c", BUSY]) if beside else None
        try:
            rows.append(("beside a busy program" if beside else "alone", *(round(speed(way)) for way in WAYS.values())))
        finally:
            if neighbour is not None:
                neighbour.kill()
                neighbour.wait()
    head = ("training, tokens a second", *WAYS)
    print(Table(head, tuple(rows)).markdown())
    write(
        "bench-threads",
        title="Waiting threads: tokens a second",
        figures={f"{row[0]}, {way}": value for row in rows for way, value in zip(WAYS, row[1:], strict=True)},
    )


if __name__ == "__main__":
    main()
