"""Recurrent or convolutional layers under attention, beside either alone. `python -m bench.hybrid TEXT`.

A language model of characters with four layers, in the setting of the recipe `gpt`; all contenders have about the same number
of parameters, because the feed-forward layers of blocks without attention are half as wide.

    attention                 four layers of attention, told where tokens stand
    attention, no positions   the same, not told
    lstm                      four LSTM layers
    lstm under attention      two LSTM layers, then two of attention, not told: the recurrence below knows the order
    gru under attention       the same with GRU layers, which are smaller by a quarter
    convolutions              four layers of gated convolutions, which read four characters each
    convolutions under attention    two of them, then two of attention, not told
    attention under lstm      two layers of attention, not told, then two LSTM layers

The table has the validation loss (mean and spread of the seeds) and the minutes; the results page of the documentation draws
the loss against steps and against minutes. A stopped bench goes on; `--table` prints what there is.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import regard
from bench.entry import find_data, parse
from bench.results import keep_run, merge_runs, write
from regard.report.table import Table
from regard.training.run.log import read_log

WIDTH, HIDDEN, HEADS = 128, 512, 4
ATTENTION: dict[str, Any] = {
    "mix": {"kind": "full", "heads": HEADS, "bias": False},
    "feed": {"kind": "feed_forward", "width": HIDDEN, "activation": "gelu", "bias": False},
}


def without_attention(mix: str | dict[str, Any]) -> dict[str, Any]:
    return {"mix": mix, "feed": {**ATTENTION["feed"], "width": HIDDEN // 2}}


LSTM, GRU = without_attention("lstm"), without_attention("gru")
CONVOLUTION = without_attention({"kind": "gated_convolution", "kernel": 4})
CONTENDERS: dict[str, list[dict[str, Any]]] = {
    "attention": [ATTENTION] * 4,
    "attention, no positions": [ATTENTION] * 4,
    "lstm": [LSTM] * 4,
    "lstm under attention": [LSTM] * 2 + [ATTENTION] * 2,
    "gru under attention": [GRU] * 2 + [ATTENTION] * 2,
    "convolutions": [CONVOLUTION] * 4,
    "convolutions under attention": [CONVOLUTION] * 2 + [ATTENTION] * 2,
    "attention under lstm": [ATTENTION] * 2 + [LSTM] * 2,
}


def run(out: Path, text: Path, name: str, seed: int, *, smoke: bool) -> dict[str, Any]:
    """Train, or go on."""
    place = out / f"{name.replace(', ', '-').replace(' ', '-')}-{seed}"
    changes: dict[str, Any] = {
        "model.decoder": {"block": None, "depth": None, "blocks": CONTENDERS[name]},
        "train.seed": seed, "train.validate_every": 250, "data.context": 128,
    }  # fmt: skip
    if name != "attention":
        changes["model.embed"] = {"position": "none"}
    if smoke:
        changes |= {"train.steps": 4, "train.validate_every": 2, "train.schedule": {"kind": "constant", "lr": 1e-3}}
        (out / "short.txt").write_text(text.read_text(encoding="utf-8")[:8000], encoding="utf-8")
        text = out / "short.txt"
    regard.train("gpt", [str(text)], out=place, set=changes)
    log = read_log(place / "log.jsonl")
    start, done = (next(e for e in reversed(log) if e["event"] == kind) for kind in ("start", "done"))
    curve = [(e["step"], e["seconds"] / 60, e["loss"]) for e in log if e["event"] == "valid"]
    return {
        "contender": name, "seed": seed, "loss": round(min(loss for *_, loss in curve), 4), "curve": curve,
        "minutes": round(done["seconds"] / 60, 2), "parameters": start["parameters"],
    }  # fmt: skip


def tabulate(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    figures: dict[str, dict[str, Any]] = {}
    for name in CONTENDERS:
        found = [row for row in rows if row["contender"] == name]
        if not found:
            figures[name] = {"loss": "not run"}
            continue
        losses = [row["loss"] for row in found]
        figures[name] = {
            "loss": round(mean(losses), 4), "spread": round(stdev(losses), 4) if len(losses) > 1 else None,
            "seeds": len(losses), "minutes": round(mean(row["minutes"] for row in found), 2),
            "parameters": found[0]["parameters"],
            **{f"validation loss by {along}": average([row["curve"] for row in found], axis)
               for axis, along in enumerate(("step", "minute"))},
        }  # fmt: skip
    return figures


def average(curves: list[list[list[float]]], axis: int) -> list[list[float]]:
    """The mean of curves with points (step, minutes, loss), against one of the first two."""
    return [[round(mean(p[i] for p in at), 4) for i in (axis, 2)] for at in zip(*curves, strict=False)]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("text", type=Path, nargs="?", help="by default tinyshakespeare")
    arguments.add_argument("--contender", action="append", choices=CONTENDERS, help="only this one; may be repeated")
    arguments.add_argument("--table", action="store_true", help="train nothing; print and write what has been measured")
    said = parse(arguments, out="runs/hybrid", seeds=(1, 2, 3))
    out = said.out
    out.mkdir(parents=True, exist_ok=True)
    for seed in () if said.table else said.seed:
        for name in said.contender or CONTENDERS:
            measure = partial(
                run, out, said.text or find_data("tinyshakespeare", "input.txt"), name, seed, smoke=said.smoke
            )
            keep_run(out / f"{name}-{seed}.json", measure)
    rows = merge_runs("hybrid", out, "contender", "seed")
    figures = tabulate(rows)
    head = ("loss", "spread", "seeds", "minutes", "parameters")
    print(Table(("contender", *head), tuple((n, *(r.get(k) for k in head)) for n, r in figures.items())).markdown())
    if not said.contender:
        title = (
            "Recurrent or convolutional layers under attention: characters, four layers, context 128, validation loss"
        )
        print(write("hybrid", title=title, figures=figures, runs=rows))


if __name__ == "__main__":
    main()
