"""Training beside other programs: tokens a second alone, and beside four busy processes of the lowest priority.

`python -m bench.busy`: one process trains a small Transformer on two threads, for a few seconds at a time, alone and beside the
others in turn, so that other noise is the same for both. The second column runs the parts of a batch side by side in any case,
as training did before it noticed that a machine is busy.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from bench.race import race, serve
from bench.results import parse, write
from regard.machine import SPINS
from regard.report.table import Table

THREADS, BUSY, TOKENS, WANTED = 2, 4, 4096, 0.27
ALONE, BESIDE = "alone", "beside"
WAYS = ("ours", "always side by side")
SHAPE = {"width": 128, "depth": 3, "heads": 4, "hidden": 256}


def work(way: str, seconds: float) -> None:
    """Train for so many seconds a turn, and say how many tokens a second."""
    import torch

    from regard.data.generators import Copy
    from regard.families import transformer
    from regard.tasks.common.capabilities import order_batches
    from regard.tasks.common.task import Dataset
    from regard.tasks.translate import Translate, TranslateData
    from regard.text import Chars
    from regard.training.optimizer_step import OptimizerSteps
    from regard.training.recipe import Train

    torch.set_num_threads(THREADS)
    pairs = Copy(symbols=40, max_length=40, count=20_000).pairs("train")
    task = Translate.prepare(TranslateData(tokenizer=Chars(), metrics=("loss",)), Dataset([pairs], [], "", {}))
    examples = task.encode([pairs])
    batches = order_batches(task, examples, tokens=TOKENS, seed=1).epoch(0)
    net = transformer.spec(**SHAPE, vocab=task.tokenizer.size, length=64, dropout=0.1).build(seed=1)  # type: ignore[arg-type]
    steps = OptimizerSteps(net, task, Train.parse({"steps": 1000, "batch_tokens": TOKENS}))
    if way == WAYS[1]:
        steps.thread_group.pace.add = lambda processor, seconds: None  # type: ignore[method-assign]
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
    """So many processes of the lowest priority that never rest."""
    others = [
        subprocess.Popen([sys.executable, "-c", "import os\nos.nice(19)\nwhile True: pass"]) for _ in range(number)
    ]
    try:
        time.sleep(0.5)
        yield
    finally:
        for other in others:
            other.kill()
        for other in others:
            other.wait()


def measure(rounds: int, seconds: float) -> dict[str, dict[str, list[float]]]:
    """Tokens a second, by way and case."""
    found: dict[str, dict[str, list[float]]] = {way: {ALONE: [], BESIDE: []} for way in WAYS}
    os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
    workers = {way: ["bench.busy", "--worker", way, "--seconds", str(seconds)] for way in WAYS}
    for _ in range(rounds):
        for case in (ALONE, BESIDE):
            with busy_processes(BUSY if case == BESIDE else 0):
                answers = race(workers, 1, (case,), apart=True)
            for way, rows in answers.items():
                found[way][case] += [row["tokens_per_s"] for row in rows]
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m bench.busy", description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seconds", type=float, default=8.0)
    arguments.add_argument("--worker", choices=WAYS)
    asked = parse(arguments)
    if asked.worker:
        work(asked.worker, asked.seconds)
        return
    found = measure(asked.rounds, asked.seconds)
    medians = {way: {case: statistics.median(values) for case, values in cases.items()} for way, cases in found.items()}
    quiet = max(medians[way][ALONE] for way in WAYS)
    ratios = {way: medians[way][BESIDE] / quiet for way in WAYS}
    rows = [(case, *(round(medians[way][case]) for way in WAYS)) for case in (ALONE, BESIDE)]
    print(Table(("tokens a second", *WAYS), (*rows, ("share", *(round(ratios[way], 2) for way in WAYS)))).markdown())
    figures: dict[str, float] = {
        f"{case}, {way}, tokens/s": round(medians[way][case]) for way in WAYS for case in medians[way]
    }
    figures |= {f"share beside {BUSY} busy processes, {way}": round(ratios[way], 3) for way in WAYS}
    title = f"Training on {THREADS} threads beside {BUSY} busy processes of the lowest priority"
    print(
        write("bench-busy", title=title, command="python -m bench.busy", figures=figures, rounds=found), file=sys.stderr
    )
    if ratios[WAYS[0]] < WANTED:
        raise SystemExit(f"{ratios[WAYS[0]]:.2f} of the speed alone, less than {WANTED}")


if __name__ == "__main__":
    main()
