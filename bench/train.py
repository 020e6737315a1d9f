"""Training speed beside the peers, in target tokens a second. `python -m bench.train tiny --rounds 3`."""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
import torch
from numpy.typing import NDArray

from bench import corpus as made
from bench.entry import Mode, choose, parse
from bench.peers import CONTENDERS, SHAPES, shape_of
from bench.race import best_and_median, divide, race, serve
from bench.results import write
from regard.data.batch import IGNORE, Batch, pad_rows
from regard.families import transformer
from regard.model.cost import cost
from regard.report.table import Table

TOKENS, SMOKE_TOKENS, WARM, PATIENCE = 4096, 64, 2, 20.0
"""Tokens of a batch, steps to warm up, and seconds after which the slowest have shown enough."""
PEAK = "the matrix peak"


def work(name: str, shape: str, steps: int) -> None:
    """One contender: build, warm up, then `steps` batches a turn."""
    build, kind = CONTENDERS[name]
    source, target = made.corpus(200) if Mode.smoke else made.corpus()
    order = getattr(made, kind)(source, target, SMOKE_TOKENS if Mode.smoke else TOKENS)
    place = 0

    def make(rows: NDArray[np.int64]) -> Batch:
        wanted = pad_rows(target, rows, IGNORE, after=2)
        return Batch(
            pad_rows(target, rows, 0, before=1), wanted.ids, pad_rows(source, rows, 0, after=2), sum(wanted.lengths)
        )

    def turn(case: str) -> dict[str, float]:
        nonlocal place
        tokens, began = 0, time.perf_counter()
        for _ in range(steps):
            rows = order[place % len(order)]
            train(rows)
            tokens, place = tokens + sum(len(target[i]) + 1 for i in rows), place + 1
            if time.perf_counter() - began > PATIENCE:
                break
        return {"tokens_per_s": tokens / (time.perf_counter() - began)}

    train = build(shape_of(shape), make)
    began = time.perf_counter()
    for _ in range(0 if Mode.smoke else WARM):
        train(order[place])
        place += 1
        if time.perf_counter() - began > PATIENCE:
            break
    serve(turn)


def flops(shape: str) -> float:
    """Of training on one target token, its share of the source included: three forward passes, no padding counted."""
    source, target = made.corpus()
    n, m = (float((x.lengths**2).sum() / x.lengths.sum()) + 1 for x in (target, source))  # as a token sees it
    net = transformer.spec(**shape_of(shape), vocab=made.VOCAB, dropout=0.0).build(seed=1)  # type: ignore[arg-type]
    return 3.0 * cost(net, round(n), round(m)).flops


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("shape", choices=SHAPES)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--steps", type=int)
    said = parse(arguments, contenders=CONTENDERS)
    steps = said.steps or (1 if said.smoke else {"tiny": 12, "base": 3}[said.shape])
    if said.worker:
        work(said.worker, said.shape, steps)
        return
    words, rounds = (["--smoke"], 1) if said.smoke else ([], said.rounds)
    names = choose(said, CONTENDERS)
    workers = {n: ["bench.train", said.shape, "--steps", str(steps), "--worker", n, *words] for n in names}
    found = race(workers | {PEAK: ["bench.peak"]}, rounds, apart=said.shape == "base")  # gigabytes each
    peaks = {kind: max(row[kind] for row in found[PEAK]) for kind in ("float32", "bfloat16")}
    del found[PEAK]
    each = flops(said.shape)
    speeds = {name: best_and_median(rows, "tokens_per_s") for name, rows in found.items()}
    ours = speeds["regard"][0] if "regard" in speeds else None
    rows = [
        (
            name, round(best), round(median), divide(ours, best), round(max(r["peak_mb"] for r in found[name])),
            *(round(best * each * 1e-9 / peak, 2) for peak in peaks.values()),
        )
        for name, (best, median) in speeds.items()
    ]  # fmt: skip
    shares = (f"share of {peak:.0f} GFLOPS {kind}" for kind, peak in peaks.items())
    head = ("contender", "best tokens/s", "median", "regard is faster by", "peak MB", *shares)
    print(Table(head, tuple(rows)).markdown())
    print(f"{each * 1e-6:.1f} MFLOP a target token\n")
    if not said.only:
        figures = {name: dict(zip(head[1:], row[1:], strict=True)) for name, *row in ((r[0], *r) for r in rows)}
        path = write(
            f"bench-train-{said.shape}", title=f"Training speed, {said.shape}", figures=figures,
            threads=torch.get_num_threads(),
        )  # fmt: skip
        print(path, file=sys.stderr)


if __name__ == "__main__":
    main()
