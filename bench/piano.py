"""Piano rolls: negative log-likelihood of a frame beside the published figures. `python -m bench.piano`.

RNN, GRU, LSTM and a Transformer on the chorales of Bach (JSB) and on folk tunes (Nottingham), in the split and with the loss of
Bai et al. 2018, table 1: the sum over 88 keys, the first frame of a piece given. Training stops when the validation loss has
not fallen for a while, and the best checkpoint is used. Of a model's candidates, the one with the lowest validation loss is
trained with further seeds, and for it alone the test is read. A stopped bench goes on; `--table` prints what there is.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import regard
from bench.entry import find_data, parse
from bench.results import merge_runs, write
from regard.report.table import Table
from regard.tasks.common.losses import evaluate_loss
from regard.training.run.log import read_log

FILES = {"jsb": "JSB_Chorales.mat", "nottingham": "Nottingham.mat"}
TITLES = {"jsb": "chorales of Bach (JSB)", "nottingham": "folk tunes (Nottingham)"}
PUBLISHED = {
    "jsb": {"rnn": 8.91, "gru": 8.43, "lstm": 8.45, "tcn": 8.10},
    "nottingham": {"rnn": 4.05, "gru": 3.46, "lstm": 3.29, "tcn": 3.07},
}
"""Bai et al. 2018; their convolutional network (TCN) stands beside the Transformer."""
MODELS: dict[str, dict[str, Any]] = {
    "rnn": {"family": "rnn", "cell": "rnn"},
    "gru": {"family": "rnn", "cell": "gru"},
    "lstm": {"family": "rnn", "cell": "lstm"},
    "transformer": {
        "family": "gpt", "heads": 4, "embed": {"position": None}, "decoder": {"position": "rotary"}, "bias": False,
    },
}  # fmt: skip
CANDIDATES: dict[str, dict[str, list[dict[str, Any]]]] = {
    "jsb": {
        "rnn": [{"width": 300, "depth": 1, "dropout": 0.4}, {"width": 200, "depth": 1, "dropout": 0.5}],
        "gru": [{"width": 200, "depth": 1, "dropout": 0.5}, {"width": 300, "depth": 1, "dropout": 0.5}],
        "lstm": [{"width": 200, "depth": 1, "dropout": 0.5}, {"width": 300, "depth": 1, "dropout": 0.5}],
        "transformer": [
            {"width": 128, "depth": 2, "hidden": 256, "dropout": 0.4},
            {"width": 64, "depth": 3, "hidden": 256, "dropout": 0.3},
            {"width": 96, "depth": 4, "hidden": 384, "dropout": 0.4},
        ],
    },
    "nottingham": {
        "rnn": [{"width": 400, "depth": 2, "dropout": 0.2}],
        "gru": [{"width": 300, "depth": 2, "dropout": 0.4}],
        "lstm": [
            {"width": 300, "depth": 2, "dropout": 0.4},
            {"width": 400, "depth": 1, "dropout": 0.4},
            {"width": 300, "depth": 2, "dropout": 0.5, "batch_tokens": 2048, "validate_every": 200},
            {"width": 280, "depth": 3, "dropout": 0.3},
            {"width": 300, "depth": 2, "dropout": 0.4, "weight_decay": 0.1},
            {"width": 300, "depth": 2, "dropout": 0.4, "weight_decay": 0.3},
        ],
        "transformer": [{"width": 128, "depth": 4, "hidden": 512, "dropout": 0.3}],
    },
}
"""Settings of a model or of its training. Published sizes vary from one layer of 500 to three of 280, at about 0.3 and 1
million parameters."""
TRAIN: dict[str, dict[str, Any]] = {
    "jsb": {"epochs": 200, "batch_tokens": 512, "validate_every": 54, "patience": 12},
    "nottingham": {"epochs": 60, "batch_tokens": 4096, "validate_every": 100, "patience": 10},
}
WEIGHT_DECAY = 0.01


def recipe(music: str, name: str, candidate: int, seed: int, *, smoke: bool) -> dict[str, Any]:
    chosen = CANDIDATES[music][name][candidate]
    usual = {**TRAIN[music], "weight_decay": WEIGHT_DECAY}
    training = {key: chosen.get(key, value) for key, value in usual.items()}
    decay = training.pop("weight_decay")
    sizes = {key: value for key, value in chosen.items() if key not in usual}
    model = MODELS[name] | sizes | ({} if name == "transformer" else {"init": "xavier"})
    small = {"width": 16, "depth": 1} if smoke else {}
    rate = 2e-3 if name in ("transformer", "rnn") else 4e-3
    return {
        "task": "frames",
        "data": {"train": [str(find_data("polymusic", FILES[music]))]},
        "model": {**model, **small},
        "train": {
            **training, "seed": seed, "optimizer": {"kind": "adamw", "weight_decay": decay}, "clip_norm": 1.0,
            "schedule": {"kind": "cosine", "lr": rate, "warmup": 100}, "label_smoothing": 0.0, "precision": "float32",
            **({"steps": 4, "validate_every": 2, "schedule": {"kind": "constant", "lr": rate}} if smoke else {}),
        },
    }  # fmt: skip


def train(out: Path, music: str, name: str, candidate: int, seed: int, *, smoke: bool) -> dict[str, Any]:
    """Train, or go on, or do nothing if it is done; the validation loss, without a look at the test."""
    folder = out / f"{music}-{name}-{candidate}-{seed}"
    regard.train(recipe(music, name, candidate, seed, smoke=smoke), out=folder)
    log = read_log(folder / "log.jsonl")
    start, done = (next(e for e in reversed(log) if e["event"] == kind) for kind in ("start", "done"))
    valid = min(event["loss"] for event in log if event["event"] == "valid")
    return {
        "music": music, "model": name, "seed": seed, "size": CANDIDATES[music][name][candidate],
        "validation": round(valid, 3), "steps": done["step"], "minutes": round(done["seconds"] / 60, 1),
        "parameters": start["parameters"], "folder": str(folder),
    }  # fmt: skip


def evaluate(row: dict[str, Any]) -> dict[str, Any]:
    """A trained model with the loss of its best checkpoint on the test."""
    model = regard.load(Path(row["folder"]) / "best")
    examples = model.task.encode(
        type(model.task).read_test(model.task.settings, [str(find_data("polymusic", FILES[row["music"]]))])
    )
    found = evaluate_loss(model.task, model.net, examples)
    scores = {"nats per frame": round(found["loss"], 3), "frame accuracy": round(found["frame_accuracy"], 1)}
    return {key: value for key, value in row.items() if key != "folder"} | scores


def measure(
    out: Path, music: str, name: str, seeds: Sequence[int], *, recorded: dict[str, Any] | None, smoke: bool
) -> None:
    """Choose a candidate on validation data, train it with all seeds, and read the test for it.

    If there are more candidates than a `recorded` run had, only the new ones are trained; if none is better, that run stays.
    """
    count = len(CANDIDATES[music][name])
    known = [] if recorded is None or smoke or len(recorded["candidates"]) >= count else recorded["candidates"]
    trained: list[dict[str, Any]] = [{"validation": loss} for loss in known]
    trained += [train(out, music, name, i, 1, smoke=smoke) for i in range(len(known), count)]
    for row in trained:
        print(json.dumps(row), flush=True)
    best, losses = min(range(count), key=lambda i: trained[i]["validation"]), [one["validation"] for one in trained]
    if recorded is not None and best < len(known):
        row = {**recorded, "candidates": losses}
        (out / f"{music}-{name}-{row['seed']}.json").write_text(json.dumps(row) + "\n", encoding="utf-8")
        return
    for seed in seeds:
        kept = out / f"{music}-{name}-{seed}.json"
        if not kept.exists() or json.loads(kept.read_text(encoding="utf-8"))["candidates"] != losses:
            row = evaluate(trained[best] if seed == 1 else train(out, music, name, best, seed, smoke=smoke))
            row["candidates"] = losses
            kept.write_text(json.dumps(row) + "\n", encoding="utf-8")
            print(json.dumps(row), flush=True)


def tabulate(runs: list[dict[str, Any]], music: str) -> dict[str, dict[str, Any]]:
    """What has been measured so far, beside what was published."""
    figures: dict[str, dict[str, Any]] = {}
    for name in MODELS:
        found = [row for row in runs if row["model"] == name]
        row: dict[str, Any] = {"published": PUBLISHED[music].get(name), "nats per frame": "not run"}
        if found:
            row |= {
                key: round(mean(one[key] for one in found), 3)
                for key in ("nats per frame", "frame accuracy", "validation", "minutes")
            }
            each = [one["nats per frame"] for one in found]
            row |= {"each seed": each, "seeds": len(found), "parameters": found[0]["parameters"]}
            row |= {"size": found[0]["size"], "validation of each candidate": found[0]["candidates"]}
        figures[name] = row
    figures["tcn"] = {"published": PUBLISHED[music]["tcn"], "nats per frame": "not built"}
    return figures


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--music", action="append", choices=FILES, help="may be repeated; both unless given")
    arguments.add_argument("--model", action="append", choices=MODELS, help="may be repeated; all unless given")
    arguments.add_argument("--table", action="store_true", help="train nothing; print and write what has been measured")
    said = parse(arguments, out="runs/piano", seeds=(1,))
    out = said.out
    out.mkdir(parents=True, exist_ok=True)
    for music in said.music or FILES:
        for name in () if said.table else said.model or MODELS:
            earlier = merge_runs(f"piano-{music}", out, "music", "model", "seed")
            recorded = next((row for row in earlier if (row["music"], row["model"]) == (music, name)), None)
            measure(out, music, name, said.seed, recorded=recorded, smoke=said.smoke)
        runs = [row for row in merge_runs(f"piano-{music}", out, "music", "model", "seed") if row["music"] == music]
        figures = tabulate(runs, music)
        head = ("published", "nats per frame", "frame accuracy", "seeds", "minutes", "parameters")
        print(Table((music, *head), tuple((n, *(r.get(k) for k in head)) for n, r in figures.items())).markdown())
        if not said.model:
            title = f"Piano rolls, {TITLES[music]}, test: nats per frame (sum over 88 keys), beside Bai et al. 2018"
            some = "" if said.all_seeds else f" --seed {' '.join(map(str, said.seed))}"
            command = f"python -m bench.piano --music {music}{some}"
            print(write(f"piano-{music}", title=title, command=command, figures=figures, runs=runs))


if __name__ == "__main__":
    main()
