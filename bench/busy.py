"""Training beside other programs: tokens a second alone, and beside four busy processes of the lowest priority.

`python -m bench.busy`: one process trains a small Transformer on two threads, for a few seconds at a time, alone and beside the
others in turn, so that other noise is the same for both.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count

from bench.entry import Mode, parse
from bench.race import race, serve
from bench.results import write
from regard.machine import SPINS
from regard.report.table import Table

THREADS, BUSY, TOKENS, WANTED = 2, 4, 4096, 0.27
ALONE, BESIDE = "alone", "beside"
SHAPE = {"width": 128, "depth": 3, "heads": 4, "hidden": 256}


def work(seconds: float) -> None:
    """Train for so many seconds a turn, and say how many tokens a second."""
    import torch

    from regard.data.generators import Copy
    from regard.families import transformer
    from regard.tasks.common.task import Dataset
    from regard.tasks.common.training_hooks import order_batches
    from regard.tasks.translate import Translate, TranslateData
    from regard.text import Chars
    from regard.training.recipe import Train
    from regard.training.step.optimizer_step import OptimizerSteps

    torch.set_num_threads(THREADS)
    pairs = Copy(symbols=40, max_length=40, count=200 if Mode.smoke else 20_000).pairs("train")
    task = Translate.prepare(TranslateData(tokenizer=Chars(), metrics=("loss",)), Dataset([pairs], [], "", {}))
    examples = task.encode([pairs])
    batches = order_batches(task, examples, tokens=64 if Mode.smoke else TOKENS, seed=1).epoch(0)
    net = transformer.spec(**SHAPE, vocab=task.tokenizer.size, length=64, dropout=0.1).build(seed=1)  # type: ignore[arg-type]
    steps = OptimizerSteps(net, task, Train.parse({"steps": 1000, "batch_tokens": TOKENS}))
    numbers = count(1)

    def turn(case: str) -> dict[str, float]:
        tokens, began, used = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - began < seconds:
            number = next(numbers)
            group = [batches[number % len(batches)]]
            tokens += steps.take(examples, group, number=number, rate=1e-4, first=False).tokens
        taken = time.perf_counter() - began
        return {"tokens_per_s": tokens / taken, "cores": (time.process_time() - used) / taken}

    turn("")
    serve(turn)


@contextmanager
def busy_processes(number: int) -> Iterator[None]:
    """So many processes of the lowest priority that never rest, in a session of their own, as from another terminal.

    Linux shares the processor between sessions first (autogroups), so priorities count only within one: the fair share
    beside a busy session is half of the machine, whatever its priority.
    """
    script = f"import os\nos.nice(19)\nfor _ in range({number - 1}):\n    if os.fork() == 0: break\nwhile True: pass"
    others = subprocess.Popen([sys.executable, "-c", script], start_new_session=True) if number else None
    try:
        time.sleep(0.5)
        yield
    finally:
        if others is not None:
            os.killpg(others.pid, signal.SIGKILL)
            others.wait()


def measure(rounds: int, seconds: float) -> dict[str, list[float]]:
    """Tokens a second, by case."""
    found: dict[str, list[float]] = {ALONE: [], BESIDE: []}
    os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
    words = ["--seconds", str(seconds), *["--smoke"] * Mode.smoke]
    workers: dict[str, Sequence[str]] = {"regard": ["bench.busy", "--worker", *words]}
    for _ in range(rounds):
        for case in found:
            with busy_processes(BUSY if case == BESIDE else 0):
                answers = race(workers, 1, (case,), apart=True)
            found[case] += [row["tokens_per_s"] for row in answers["regard"]]
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m bench.busy", description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seconds", type=float, default=8.0)
    arguments.add_argument("--worker", action="store_true")
    asked = parse(arguments)
    if asked.worker:
        work(asked.seconds)
        return
    found = measure(1, 0.1) if asked.smoke else measure(asked.rounds, asked.seconds)
    medians = {case: statistics.median(values) for case, values in found.items()}
    share = medians[BESIDE] / medians[ALONE]
    print(
        Table(
            ("tokens a second", ALONE, BESIDE, "share"), (("regard", *map(round, medians.values()), round(share, 2)),)
        ).markdown()
    )
    figures = {f"{case}, tokens/s": round(value) for case, value in medians.items()} | {"share": round(share, 3)}
    title = f"Training on {THREADS} threads beside {BUSY} busy processes of the lowest priority, another session's"
    path = write("bench-busy", title=title, figures=figures, rounds=found)
    print(path, file=sys.stderr)
    if share < WANTED and not asked.smoke:
        raise SystemExit(f"{share:.2f} of the speed alone, less than {WANTED}")


if __name__ == "__main__":
    main()
