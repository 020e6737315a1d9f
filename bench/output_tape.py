"""The Extended Neural GPU beside a Transformer: copy, reverse, dates. `python -m bench.output_tape`.

Kaiser & Bengio (2016) let a Neural GPU read the symbols it wrote. Both models learn the same problems from the same
examples for the same number of steps, with three seeds. What counts is the share of 1,000 unseen problems whose output is
right to the last symbol, by the model of the last step: nothing is chosen on them.

Run again after a stop, it goes on; `--only` and `--seed` run a part, and `--table` prints and writes what has been measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import regard
from bench.entry import parse
from bench.results import keep_run, merge_runs, write
from regard.report.table import Table
from regard.training.run.log import read_log

SEEDS = (1, 2, 3)
STEPS = {"copy": 1500, "reverse": 3000, "dates": 3000}
START = {"copy": 5, "reverse": 5, "dates": 10}
"""Tokens of the first examples; those of all lengths are used after half of the steps."""
PULLS = 36
"""How often the penalty on the copies of the encoder's weights grows; they become one at the thirtieth time. By then the rate
has fallen for half of the steps: at a high one, a model that made no error forgot everything soon after."""
MODELS: dict[str, dict[str, Any]] = {
    "extended_neural_gpu": {
        "model": {"family": "extended_neural_gpu", "width": 24, "dropout": 0.0, "copies": 6},
        "optimizer": {"kind": "adam", "betas": [0.9, 0.999], "eps": 1e-4},
        "lr": 5e-3,
    },
    "transformer": {
        "model": {
            "family": "transformer",
            "width": 64,
            "depth": 2,
            "heads": 4,
            "hidden": 256,
            "dropout": 0.0,
            "norm": "pre",
        },
        "optimizer": {"kind": "adamw"},
        "lr": 3e-3,
    },
}


def generator(problem: str, smoke: bool) -> dict[str, Any]:
    """The examples of a problem; those of validation never occur in training."""
    counts = {"count": 200 if smoke else 50_000, "valid": 10 if smoke else 1000, "seed": 1}
    if problem == "dates":
        return {"kind": "dates", **counts}
    return {"kind": "algorithm", "problem": problem, "base": 10, "min_digits": 4, "max_digits": 12, **counts}


def train(out: Path, problem: str, name: str, seed: int, smoke: bool) -> dict[str, Any]:
    """Train one model: its share of exact outputs, the minutes and the number of parameters."""
    chosen, steps = MODELS[name], 4 if smoke else STEPS[problem]
    model = {**chosen["model"], **({"width": 8} if smoke else {})}
    if "copies" in model:
        model["pull_every"] = max(steps // PULLS, 1)
    recipe = {
        "task": "translate",
        "data": {
            "generate": generator(problem, smoke), "tokenizer": {"kind": "chars"}, "joint_vocab": False, "max_length": 64,
            "metrics": ["exact"], "curriculum": {"start": START[problem], "steps": max(steps // 2, 1)},
        },
        "model": model,
        "train": {
            "steps": steps, "batch_tokens": 512, "seed": seed, "optimizer": chosen["optimizer"], "label_smoothing": 0.0,
            "schedule": {"kind": "wsd", "lr": chosen["lr"], "warmup": steps // 20, "decay": 0.7}, "clip_norm": 1.0,
            "validate_every": steps, "save_every": max(steps // 10, 1), "precision": "float32",
        },
        "decode": {"beam": 1, "repetition_guard": False},
    }  # fmt: skip
    run = out / f"{problem}-{name}-{seed}"
    regard.train(recipe, out=run)
    log = read_log(run / "log.jsonl")
    start, done = (next(e for e in reversed(log) if e["event"] == kind) for kind in ("start", "done"))
    return {
        "problem": problem, "model": name, "seed": seed, "exact": round(done["scores"]["exact"], 2),
        "minutes": round(done["seconds"] / 60, 1), "parameters": start["parameters"],
    }  # fmt: skip


def tabulate(runs: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What has been measured so far: the mean over seeds, and each of them."""
    figures: dict[str, dict[str, Any]] = {}
    for problem in STEPS:
        figures[problem] = {}
        for name in MODELS:
            found = [run for run in runs if (run["problem"], run["model"]) == (problem, name)]
            figures[problem][name] = {"mean": "not run"} if not found else {
                "mean": round(mean(run["exact"] for run in found), 2), "each seed": [run["exact"] for run in found],
                "minutes": round(mean(run["minutes"] for run in found), 1), "parameters": found[0]["parameters"],
            }  # fmt: skip
    return figures


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--only", action="append", choices=STEPS, help="a problem; may be repeated")
    arguments.add_argument("--table", action="store_true", help="train nothing; print and write what has been measured")
    said = parse(arguments, out="runs/output-tape", seeds=SEEDS)
    out = said.out
    out.mkdir(parents=True, exist_ok=True)
    for seed in () if said.table else said.seed:
        for problem in said.only or STEPS:
            for name in MODELS:
                keep_run(out / f"{problem}-{name}-{seed}.json", partial(train, out, problem, name, seed, said.smoke))
    runs = merge_runs("output-tape", out, "problem", "model", "seed")
    figures = tabulate(runs)
    rows = tuple((problem, *(row[name]["mean"] for name in MODELS)) for problem, row in figures.items())
    print(Table(("per cent exact", *MODELS), rows).markdown())
    if not said.only and said.all_seeds:
        title = "Extended Neural GPU and Transformer: per cent of unseen problems that are exact"
        print(write("output-tape", title=title, figures=figures, trained=STEPS, runs=runs))


if __name__ == "__main__":
    main()
