"""The Neural GPU learns to add: trained on short numbers, tried on long ones. `python -m bench.neural_gpu`.

Binary numbers of at most 20 digits are learned, with five seeds. The best checkpoint of each is chosen on sums of 21 to 40
digits, and tried on 1,000 sums of 100 and of 200 digits, and on ten of 2,000. Kaiser & Sutskever (2015) report no error at
2,000 digits for the best of many runs. A sum counts if all of its digits are right.

A seed takes about half an hour of one core to train, and as long again to try. Run again after a stop, it goes
on; `--seed` runs one seed, and `--table` prints and writes what has been measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import regard
from bench.entry import parse
from bench.results import keep_run, merge_runs, write
from regard.data.generators import Algorithm, Problem
from regard.data.pairs import Pairs
from regard.metrics import METRICS
from regard.recipes.merge import read_recipe
from regard.report.table import Table
from regard.training.run.log import read_log

SEEDS = (1, 2, 3, 4, 5)
DIGITS = 20
CHOSEN_ON = (DIGITS + 1, 2 * DIGITS)
TESTS = {100: 1000, 200: 1000, 2000: 10}
"""Digits of the numbers, and how many problems are tried."""
CHOSEN = "exact, 21 to 40 digits"
BATCH = 16
"""Problems that are solved at a time; the grids of more leave the cache, which takes longer."""


def problems(problem: Problem, digits: tuple[int, int], count: int, part: str = "valid", seed: int = 1) -> Pairs:
    return Algorithm(problem, 2, *digits, count=count, valid=count, seed=seed).pairs(part)


def table(path: Path, pairs: Pairs) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{s}\t{t}\n" for s, t in zip(pairs.source, pairs.target, strict=True)), encoding="utf-8")
    return str(path)


def train(out: Path, problem: Problem, seed: int, smoke: bool) -> tuple[regard.Model, dict[str, Any]]:
    """A model of one seed, at its best checkpoint, and the facts of its run."""
    digits = 4 if smoke else DIGITS
    learned = problems(problem, (1, digits), 200 if smoke else 100_000, "train")
    chosen = problems(problem, (digits + 1, 2 * digits) if smoke else CHOSEN_ON, 8 if smoke else 200)
    recipe = read_recipe("algorithm")
    data = {name: value for name, value in recipe["data"].items() if name != "generate"}
    corpora = {
        part: [{"paths": [table(out / f"{problem}.{part}.tsv", pairs)], "header": False}]
        for part, pairs in (("train", learned), ("valid", chosen))
    }
    recipe = {**recipe, "data": {**data, **corpora}, "train": {**recipe["train"], "seed": seed}}
    if smoke:
        recipe["data"]["curriculum"] = {"start": 5, "steps": 4}
        recipe["model"] = {**recipe["model"], "width": 8, "rows": 2, "copies": 2, "pull_every": 1}
        recipe["train"] |= {
            "steps": 6,
            "validate_every": 3,
            "batch_tokens": 128,
            "schedule": {"kind": "constant", "lr": 1e-3},
        }
    run = out / f"{problem}-{seed}"
    regard.train(recipe, out=run)
    log = read_log(run / "log.jsonl")
    done = next(event for event in reversed(log) if event["event"] == "done")
    scores = [event["scores"]["exact"] for event in log if event["event"] == "valid"]
    return regard.load(run / "best"), {"minutes": done["seconds"] / 60, "chosen": max(scores)}


def right(model: regard.Model, pairs: Pairs) -> float:
    """Per cent of problems whose digits are all right."""
    outputs = [
        text for i in range(0, len(pairs), BATCH) for text in model.run(list(pairs.source[i : i + BATCH]), beam=1)
    ]
    return METRICS["exact"].compute(outputs, list(pairs.target))


def measure(out: Path, problem: Problem, seed: int, smoke: bool) -> dict[str, Any]:
    """Train one seed, or go on, and try its best checkpoint on longer numbers."""
    model, facts = train(out, problem, seed, smoke)
    row = {"problem": problem, "seed": seed, CHOSEN: round(facts["chosen"], 2), "minutes": round(facts["minutes"], 1)}
    for digits, count in ({10: 4} if smoke else TESTS).items():
        row[f"exact, {digits} digits"] = round(right(model, problems(problem, (digits, digits), count, seed=9)), 2)
    return row


def tabulate(runs: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What has been measured so far, and how many seeds make no error."""
    figures: dict[str, dict[str, Any]] = {
        f"seed {run['seed']}": {key: value for key, value in run.items() if key not in ("problem", "seed")}
        for run in runs
    }
    tested = [key for key in (runs[0] if runs else {}) if key.startswith("exact, ") and key != CHOSEN]
    perfect = {key.removeprefix("exact, "): f"{sum(r[key] == 100 for r in runs)} of {len(runs)}" for key in tested}
    return figures | {"seeds without an error": perfect}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument(
        "--problem", default="addition", choices=("addition", "multiplication", "copy", "reverse", "sort")
    )
    arguments.add_argument("--table", action="store_true", help="train nothing; print and write what has been measured")
    said = parse(arguments, out="runs/neural-gpu", seeds=SEEDS)
    out = said.out
    out.mkdir(parents=True, exist_ok=True)
    made = [
        keep_run(out / f"{said.problem}-{seed}.json", partial(measure, out, said.problem, seed, said.smoke))
        for seed in (() if said.table else said.seed)
    ]
    name = f"neural-gpu-{said.problem}"
    merged = [run for run in merge_runs(name, out, "problem", "seed") if run["problem"] == said.problem]
    runs = made if said.smoke else merged  # what is recorded has other tests
    figures = tabulate(runs)
    rows = [(run, *row.values()) for run, row in figures.items() if run.startswith("seed ")]
    print(Table(("run", *(next(iter(figures.values())) if rows else ())), tuple(rows)).markdown())
    if said.all_seeds:
        title = f"Neural GPU, {said.problem} of binary numbers: per cent exact, trained on at most {DIGITS} digits"
        print(write(name, title=title, figures=figures, tests=TESTS, runs=runs))


if __name__ == "__main__":
    main()
