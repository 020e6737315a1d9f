"""SCAN (Lake & Baroni 2018): commands to actions, in splits that ask for more than was seen. `python -m bench.scan`.

simple      commands at random                                    what anyone can learn
length      longer actions than any in training                   is it understood how to go on?
add-jump    `jump` was seen alone; now it is used like any verb   is it understood what a verb is?

Two Transformers of one size, one told where tokens stand (sinusoids), one how far apart they are (T5's buckets), beside the
published LSTM. With `--lstm`, the LSTM itself, three seeds: two layers of 200 without attention, as published. About five
minutes a model and split on two cores; run again after a stop, it goes on where it was.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import regard
from bench.entry import find_data, parse
from bench.results import keep_run, merge_runs, write
from regard.data.text_files import read_lines
from regard.errors import DataError
from regard.metrics import METRICS
from regard.report.table import Table
from regard.training.run.log import read_log

SPLITS = {"simple": "simple", "length": "length", "add-jump": "addprim_jump"}
LSTM = {"simple": 99.8, "length": 13.8, "add-jump": 0.1}
"""Per cent right, 2 layers of 200 with dropout 0.5: the best of Lake & Baroni on all splits together."""
SHAPE: dict[str, Any] = dict(width=128, depth=2, heads=4, hidden=256, dropout=0.1)
MODELS: dict[str, dict[str, Any]] = {
    "sinusoids": dict(family="transformer", norm="pre", **SHAPE),
    "distances": dict(family="t5", head_width=32, activation="relu", gated=False, tied=True, **SHAPE),
}
RECURRENT: dict[str, Any] = dict(family="lstm", width=200, embedding=200, depth=2, dropout=0.5, attention="none")
SEEDS = (1, 2, 3)
"""Of the LSTM."""
STEPS, TOKENS, ASIDE = 1500, 4096, 40
LSTM_STEPS, LSTM_TOKENS = 4000, 1024
"""Steps, and tokens of a batch. Every pair of training whose number is a multiple of `ASIDE` is kept for validation, so that
the test says nothing about when to stop."""
_ROW = re.compile(r"IN: (.+) OUT: (.+)")


def read(part: str, split: str) -> list[tuple[str, str]]:
    """The commands of a file and their actions."""
    path = find_data("scan", f"tasks_{part}_{SPLITS[split]}.txt.gz")
    rows = [(number, _ROW.fullmatch(line.strip())) for number, line in enumerate(read_lines(path), 1)]
    if wrong := [number for number, row in rows if row is None]:
        raise DataError(f"{path}, line {wrong[0]}: `IN: … OUT: …` should stand there")
    return [(row[1], row[2].strip()) for _, row in rows if row is not None]


def table(path: Path, pairs: list[tuple[str, str]]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return str(path)


def train(folder: Path, name: str, split: str, smoke: bool, seed: int = 1) -> tuple[regard.Model, float]:
    """A model of a split, and the minutes it took."""
    lstm = name == "lstm"
    pairs, steps = read("train", split), 4 if smoke else LSTM_STEPS if lstm else STEPS
    pairs = pairs[::200] if smoke else pairs
    learned = [pair for i, pair in enumerate(pairs) if i % ASIDE]
    corpora = {
        part: [{"paths": [table(folder / f"{split}.{part}.tsv", some)]}]
        for part, some in (("train", learned), ("valid", pairs[::ASIDE]))
    }
    # Actions of the test are up to 48 long; of the split by length, those of training up to 22.
    data = {**corpora, "tokenizer": {"kind": "pieces"}, "max_length": 64, "metrics": ["exact"]}
    small = dict(width=32) if lstm else dict(width=32, hidden=32)
    model = (RECURRENT if lstm else MODELS[name]) | (small if smoke else {})
    tokens = 256 if smoke else LSTM_TOKENS if lstm else TOKENS
    optimizer, lr = ({"kind": "adam"}, 1e-3) if lstm else ({"kind": "muon", "weight_decay": 0.1}, 2e-3)
    recipe = {
        "task": "translate",
        "data": data,
        "model": model,
        "train": {
            "steps": steps, "batch_tokens": tokens, "optimizer": optimizer, "label_smoothing": 0.0, "seed": seed,
            "schedule": {"kind": "wsd", "lr": lr, "warmup": steps // 20, "decay": 0.5},
            "validate_every": max(steps // 5, 1),
        },
        "decode": {"beam": 1, "max_extra": 4 if smoke else 60, "repetition_guard": False},
    }  # fmt: skip
    out = folder / (f"{split}-{name}-{seed}" if lstm else f"{split}-{name}")
    made = regard.train(recipe, out=out)
    done = next(e for e in reversed(read_log(out / "log.jsonl")) if e["event"] == "done")
    return made, done["seconds"] / 60


def right(model: regard.Model, pairs: list[tuple[str, str]]) -> float:
    """Per cent of commands whose actions are all right."""
    outputs = model.run([source for source, _ in pairs], beam=1)
    return METRICS["exact"].compute(outputs, [target for _, target in pairs])


def measure_lstm(out: Path, split: str, seed: int, smoke: bool) -> dict[str, Any]:
    """Train the LSTM on a split, and try it on the test."""
    test = read("test", split)[: 4 if smoke else None]
    model, minutes = train(out, "lstm", split, smoke, seed)
    row = {"split": split, "seed": seed, "exact": round(right(model, test), 2), "test commands": len(test)}
    return row | {"minutes": round(minutes, 1)}


def tabulate_lstm(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The LSTM of each split beside what was published for it: the mean over seeds, and each of them."""
    figures: dict[str, Any] = {}
    for split in SPLITS:
        found = [run for run in runs if run["split"] == split]
        figures[split] = {"published": LSTM[split], "mean": "not run"}
        if found:
            figures[split] |= {
                "mean": round(mean(run["exact"] for run in found), 2), "each seed": [run["exact"] for run in found],
                "test commands": found[0]["test commands"], "minutes": round(mean(run["minutes"] for run in found), 1),
            }  # fmt: skip
    return figures


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--only", action="append", choices=SPLITS, help="a split; may be repeated")
    arguments.add_argument("--lstm", action="store_true", help="the LSTM, three seeds, instead of the Transformers")
    arguments.add_argument("--table", action="store_true", help="of the LSTM: print and write what has been measured")
    said = parse(arguments, out="runs/scan", seeds=SEEDS)
    out = said.out
    figures: dict[str, Any] = {}
    if said.lstm:
        out.mkdir(parents=True, exist_ok=True)
        seeds = () if said.table else said.seed
        for split, seed in product(said.only or SPLITS, seeds):
            keep_run(out / f"{split}-lstm-{seed}.json", partial(measure_lstm, out, split, seed, said.smoke))
        runs = merge_runs("scan-lstm", out, "split", "seed")
        figures = tabulate_lstm(runs)
        rows = tuple((split, row["published"], row["mean"]) for split, row in figures.items())
        print(Table(("split", "published", "mean"), rows).markdown())
        if not said.only and said.all_seeds:
            title = "SCAN: per cent of commands whose actions are all right, an LSTM without attention"
            print(write("scan-lstm", title=title, figures=figures, steps=LSTM_STEPS, runs=runs))
        return
    for split in said.only or SPLITS:
        test = read("test", split)[: 4 if said.smoke else None]
        row: dict[str, Any] = {"LSTM, published": LSTM[split], "test commands": len(test)}
        for name in MODELS:
            model, minutes = train(out, name, split, said.smoke)
            row |= {f"Transformer, {name}": round(right(model, test), 2), f"minutes, {name}": round(minutes, 1)}
        figures[split] = row
    head = ("LSTM, published", *(f"Transformer, {name}" for name in MODELS))
    print(Table(("split", *head), tuple((split, *(row[k] for k in head)) for split, row in figures.items())).markdown())
    if not said.only:
        title = "SCAN: per cent of commands whose actions are all right, beside the published LSTM"
        print(write("scan", title=title, figures=figures, steps=STEPS))


if __name__ == "__main__":
    main()
