"""The Neural GPU learns to add: trained on short numbers, tried on long ones. `python -m bench.neural_gpu`.

Binary numbers of at most 20 digits are learned, with five seeds. The best checkpoint of each is chosen on sums of 21 to 40
digits, and tried on 1,000 sums of 100 and of 200 digits, and on ten of 2,000. Kaiser & Sutskever (2015) report no error at
2,000 digits for the best of many runs. A sum counts if all of its digits are right.

About an hour a seed on two cores; run again after a stop, it goes on where it was.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import regard
from bench.results import parse, write
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
BATCH = 50
"""Problems that are solved at a time."""


def problems(problem: Problem, digits: tuple[int, int], count: int, part: str = "valid", seed: int = 1) -> Pairs:
    return Algorithm(problem, 2, *digits, count=count, valid=count, seed=seed).pairs(part)


def table(path: Path, pairs: Pairs) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{s}\t{t}\n" for s, t in zip(pairs.source, pairs.target, strict=True)), encoding="utf-8")
    return str(path)


def train(out: Path, problem: Problem, seed: int, tiny: bool) -> tuple[regard.Model, dict[str, Any]]:
    """A model of one seed, at its best checkpoint, and the facts of its run."""
    digits = 4 if tiny else DIGITS
    learned = problems(problem, (1, digits), 200 if tiny else 100_000, "train")
    chosen = problems(problem, (digits + 1, 2 * digits) if tiny else CHOSEN_ON, 8 if tiny else 200)
    recipe = read_recipe("algorithm")
    data = {name: value for name, value in recipe["data"].items() if name != "generate"}
    corpora = {
        part: [{"paths": [table(out / f"{problem}.{part}.tsv", pairs)], "header": False}]
        for part, pairs in (("train", learned), ("valid", chosen))
    }
    recipe = {**recipe, "data": {**data, **corpora}, "train": {**recipe["train"], "seed": seed}}
    if tiny:
        recipe["data"]["curriculum"] = {"start": 5, "steps": 4}
        recipe["model"] = {**recipe["model"], "width": 8, "rows": 2, "copies": 2, "pull_every": 1}
        recipe["train"] |= {"steps": 6, "validate_every": 3, "batch_tokens": 128}
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


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--out", default="runs/neural-gpu")
    arguments.add_argument(
        "--problem", default="addition", choices=("addition", "multiplication", "copy", "reverse", "sort")
    )
    arguments.add_argument("--seed", type=int, action="append", help="only this seed; may be repeated")
    arguments.add_argument(
        "--tiny", action="store_true", help="does it run at all? Nothing is kept, unless --out says where"
    )
    said = parse(arguments)
    out = Path(tempfile.mkdtemp() if said.tiny and said.out == "runs/neural-gpu" else said.out)
    tests = {10: 4} if said.tiny else TESTS
    figures: dict[str, dict[str, Any]] = {}
    for seed in said.seed or SEEDS[: 1 if said.tiny else None]:
        model, facts = train(out, said.problem, seed, said.tiny)
        row = {"exact, 21 to 40 digits": round(facts["chosen"], 2), "minutes": round(facts["minutes"], 1)}
        for digits, count in tests.items():
            row[f"exact, {digits} digits"] = round(
                right(model, problems(said.problem, (digits, digits), count, seed=9)), 2
            )
        figures[f"seed {seed}"] = row
    head = tuple(next(iter(figures.values())))
    print(Table(("run", *head), tuple((name, *row.values()) for name, row in figures.items())).markdown())
    if said.tiny or said.seed:
        return
    perfect = {digits: sum(row[f"exact, {digits} digits"] == 100 for row in figures.values()) for digits in tests}
    figures["seeds without an error"] = {f"{digits} digits": f"{n} of {len(SEEDS)}" for digits, n in perfect.items()}
    title = f"Neural GPU, {said.problem} of binary numbers: per cent exact, trained on at most {DIGITS} digits"
    print(
        write(
            f"neural-gpu-{said.problem}",
            title=title,
            command="python -m bench.neural_gpu",
            figures=figures,
            tests=tests,
        )
    )


if __name__ == "__main__":
    main()
