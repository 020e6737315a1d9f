"""What several processes gain: training by one thread, by rows on threads, by threads in each operator, by torchrun.

`python -m bench.processes`: Transformer-Tiny on Multi30k, sixty steps each, in turns; the log of each run says how fast it was.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

from bench.entry import Mode, parse
from bench.launch import call
from bench.results import write
from bench.target import changes
from regard.report.table import Table
from regard.training.run.log import read_log
from regard.training.step.data_parallel import ThreadGroup

RECIPE = str(Path(__file__).parent / "multi30k-fast.yaml")
STEPS, ROUNDS, CORES = 60, 2, os.cpu_count() or 1
SHORT = {
    "train.epochs": "null", "train.steps": STEPS, "train.validate_every": STEPS, "train.log_every": 5,
    "train.batch_tokens": 4096, "train.schedule.warmup": 5, "data.metrics": '["loss"]',
}  # fmt: skip
WAYS: dict[str, tuple[list[str], int]] = {
    "one thread": (["regard"], 1),
    f"rows on {CORES} threads (as it comes)": (["regard"], CORES),
    f"{CORES} threads in each operator": (["bench.processes", "--operators"], CORES),
    f"torchrun, {CORES} processes": (["torch.distributed.run", "--nproc-per-node", str(CORES), "-m", "regard"], 1),
}


def speed(words: list[str], threads: int) -> float:
    """Target tokens a second, the middle of the second half of a run."""
    settings = SHORT | {"train.threads": threads} | {k: json.dumps(v) for k, v in changes().items()}
    if Mode.smoke:
        settings["train.log_every"] = 1
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        asked = [w for k, v in settings.items() for w in ("--set", f"{k}={v}")]
        call([*words, "train", RECIPE, "--out", str(run), "--quiet", *asked])
        log = [event for event in read_log(run / "log.jsonl") if event["event"] == "train"]
    half = log[len(log) // 2 :]
    return statistics.median(event["tokens_per_s"] for event in half)


def operators(words: list[str]) -> None:
    """The `regard` command, with all threads in each operator."""
    from regard.__main__ import main as regard

    with patch.object(ThreadGroup, "choose", lambda threads, tokens, device: ThreadGroup(1, threads)):
        sys.argv = ["regard", *words]
        regard()


def main() -> None:
    parse(argparse.ArgumentParser(prog="python -m bench.processes", description=__doc__))
    found: dict[str, list[float]] = {}
    for _ in range(1 if Mode.smoke else ROUNDS):
        for name, way in WAYS.items():
            found.setdefault(name, []).append(speed(*way))
            print(f"  {name}: {found[name][-1]:.0f}", file=sys.stderr)
    best = {name: max(values) for name, values in found.items()}
    alone = best["one thread"]
    figures = {f"{name}, tokens/s": round(value) for name, value in best.items()}
    figures |= {f"{name}, times one thread": round(value / alone, 2) for name, value in best.items()}
    print(Table(("figure", "value"), tuple(figures.items())).markdown())
    title = "Training speed of threads and processes, Transformer-Tiny, batches of 4,096 tokens"
    print(write("bench-processes", title=title, figures=figures))


if __name__ == "__main__":
    if "--operators" in sys.argv:
        operators(sys.argv[2:])
    else:
        main()
