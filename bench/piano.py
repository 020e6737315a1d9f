"""Piano rolls: negative log-likelihood of a frame beside the published figures. `python -m bench.piano`.

RNN, GRU, LSTM and a Transformer on the chorales of Bach (JSB) and on folk tunes (Nottingham), in the split and with the loss of
Bai et al. 2018, table 1: the sum over 88 keys, the first frame of a piece given. Training stops when the validation loss has
not fallen for a while; the best checkpoint is used, and the test is read once, at the end. A stopped bench goes on; `--table`
prints what there is.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

import regard
from bench.results import ROOT, parse, write
from regard.report.table import Table
from regard.tasks.common.losses import evaluate_loss
from regard.training.run.log import read_log

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "polymusic"
FILES = {"jsb": "JSB_Chorales.mat", "nottingham": "Nottingham.mat"}
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
SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "jsb": {
        "rnn": {"width": 300, "depth": 1, "dropout": 0.4},
        "gru": {"width": 200, "depth": 1, "dropout": 0.5},
        "lstm": {"width": 200, "depth": 1, "dropout": 0.5},
        "transformer": {"width": 128, "depth": 2, "hidden": 256, "dropout": 0.4},
    },
    "nottingham": {
        "rnn": {"width": 400, "depth": 2, "dropout": 0.2},
        "gru": {"width": 300, "depth": 2, "dropout": 0.4},
        "lstm": {"width": 300, "depth": 2, "dropout": 0.4},
        "transformer": {"width": 128, "depth": 4, "hidden": 512, "dropout": 0.2},
    },
}
"""Published sizes vary from one layer of 500 to three of 280, at about 0.3 and 1 million parameters."""
TRAIN: dict[str, dict[str, Any]] = {
    "jsb": {"epochs": 120, "batch_tokens": 512, "validate_every": 54, "patience": 12},
    "nottingham": {"epochs": 60, "batch_tokens": 4096, "validate_every": 100, "patience": 10},
}


def recipe(music: str, name: str, seed: int, *, tiny: bool) -> dict[str, Any]:
    model = MODELS[name] | SIZES[music][name] | ({} if name == "transformer" else {"init": "xavier"})
    small = {"width": 16, "depth": 1} if tiny else {}
    rate = 2e-3 if name in ("transformer", "rnn") else 4e-3
    return {
        "task": "frames",
        "data": {"train": [str(DATA / FILES[music])]},
        "model": {**model, **small},
        "train": {
            **TRAIN[music], "seed": seed, "optimizer": {"kind": "adamw", "weight_decay": 0.01}, "clip_norm": 1.0,
            "schedule": {"kind": "cosine", "lr": rate, "warmup": 100}, "label_smoothing": 0.0, "precision": "float32",
            **({"steps": 4, "validate_every": 2, "schedule": {"kind": "constant", "lr": rate}} if tiny else {}),
        },
    }  # fmt: skip


def run(out: Path, music: str, name: str, seed: int, *, tiny: bool) -> dict[str, Any]:
    """Train, or go on; then the loss of the best checkpoint on the test, once."""
    folder = out / f"{music}-{name}-{seed}"
    regard.train(recipe(music, name, seed, tiny=tiny), out=folder)
    log = read_log(folder / "log.jsonl")
    start, done = (next(e for e in reversed(log) if e["event"] == kind) for kind in ("start", "done"))
    model = regard.load(folder / "best")
    examples = model.task.encode(type(model.task).read_test(model.task.settings, [str(DATA / FILES[music])]))
    test = evaluate_loss(model.task, model.net, examples)
    valid = min(event["loss"] for event in log if event["event"] == "valid")
    return {
        "music": music, "model": name, "seed": seed, "nats per frame": round(test["loss"], 3),
        "frame accuracy": round(test["frame_accuracy"], 1), "validation": round(valid, 3), "steps": done["step"],
        "minutes": round(done["seconds"] / 60, 1), "parameters": start["parameters"],
    }  # fmt: skip


def tabulate(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What has been measured so far, beside what was published."""
    figures: dict[str, dict[str, Any]] = {}
    for music, published in PUBLISHED.items():
        for name in MODELS:
            found = [row for row in rows if (row["music"], row["model"]) == (music, name)]
            row: dict[str, Any] = {"published": published.get(name), "nats per frame": "not run"}
            if found:
                row |= {
                    key: round(mean(one[key] for one in found), 3)
                    for key in ("nats per frame", "frame accuracy", "minutes")
                }
                row |= {"seeds": len(found), "parameters": found[0]["parameters"]}
            figures[f"{music}, {name}"] = row
        figures[f"{music}, tcn"] = {"published": published["tcn"], "nats per frame": "not built"}
    return figures


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--out", type=Path, default=ROOT / "runs" / "piano")
    arguments.add_argument("--music", action="append", choices=FILES, help="may be repeated; both unless given")
    arguments.add_argument("--model", action="append", choices=MODELS, help="may be repeated; all unless given")
    arguments.add_argument("--seeds", type=int, default=1)
    arguments.add_argument("--table", action="store_true", help="train nothing; print and write what has been measured")
    arguments.add_argument("--tiny", action="store_true", help="does it run at all? Nothing is kept")
    said = parse(arguments)
    out = Path(tempfile.mkdtemp()) if said.tiny else said.out
    out.mkdir(parents=True, exist_ok=True)
    for seed in range(1, 1 + (0 if said.table else said.seeds)):
        for music in said.music or FILES:
            for name in said.model or MODELS:
                kept = out / f"{music}-{name}-{seed}.json"
                if not kept.exists():
                    row = run(out, music, name, seed, tiny=said.tiny)
                    kept.write_text(json.dumps(row) + "\n", encoding="utf-8")
                    print(json.dumps(row), flush=True)
    figures = tabulate([json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob("*.json"))])
    head = ("published", "nats per frame", "frame accuracy", "seeds", "minutes", "parameters")
    print(Table(("music, model", *head), tuple((n, *(r.get(k) for k in head)) for n, r in figures.items())).markdown())
    if not said.tiny and not said.music and not said.model:
        title = "Piano rolls, test: negative log-likelihood of a frame (sum over 88 keys), beside Bai et al. 2018"
        print(write("piano", title=title, command=f"python -m bench.piano --seeds {said.seeds}", figures=figures))


if __name__ == "__main__":
    main()
