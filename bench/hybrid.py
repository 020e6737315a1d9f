"""Recurrent layers under attention, beside either alone. `python -m bench.hybrid TEXT`.

A language model of characters with four layers, in the setting of the recipe `gpt`; all contenders have about the same number
of parameters, because the feed-forward layers of recurrent blocks are half as wide.

    attention                 four layers of attention, told where tokens stand
    attention, no positions   the same, not told
    lstm                      four LSTM layers
    lstm under attention      two LSTM layers, then two of attention, not told: the recurrence below knows the order
    gru under attention       the same with GRU layers, which are smaller by a quarter
    attention under lstm      the other way round

The table has the validation loss (mean and spread of the seeds) and the minutes; the figure shows the loss against both steps
and minutes. A stopped bench goes on; `--table` prints what there is.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import regard
from bench.results import ROOT, folder, parse, write
from regard.report.chart import Series, line_chart
from regard.report.page import Section, page
from regard.report.table import Table
from regard.training.run.log import read_log

TEXT = Path(__file__).resolve().parents[2] / "shared" / "data" / "tinyshakespeare" / "input.txt"
WIDTH, HIDDEN, HEADS = 128, 512, 4
ATTENTION: dict[str, Any] = {
    "mix": {"kind": "full", "heads": HEADS, "bias": False},
    "feed": {"kind": "feed_forward", "width": HIDDEN, "activation": "gelu", "bias": False},
}


def recurrent(kind: str) -> dict[str, Any]:
    return {"mix": kind, "feed": {**ATTENTION["feed"], "width": HIDDEN // 2}}


CONTENDERS: dict[str, list[dict[str, Any]]] = {
    "attention": [ATTENTION] * 4,
    "attention, no positions": [ATTENTION] * 4,
    "lstm": [recurrent("lstm")] * 4,
    "lstm under attention": [recurrent("lstm")] * 2 + [ATTENTION] * 2,
    "gru under attention": [recurrent("gru")] * 2 + [ATTENTION] * 2,
    "attention under lstm": [ATTENTION] * 2 + [recurrent("lstm")] * 2,
}


def run(out: Path, text: Path, name: str, seed: int, *, tiny: bool) -> dict[str, Any]:
    """Train, or go on."""
    place = out / f"{name.replace(', ', '-').replace(' ', '-')}-{seed}"
    changes: dict[str, Any] = {
        "model.decoder": {"block": None, "depth": None, "blocks": CONTENDERS[name]},
        "train.seed": seed, "train.validate_every": 250, "data.context": 128,
    }  # fmt: skip
    if name != "attention":
        changes["model.embed"] = {"position": "none"}
    if tiny:
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
        }  # fmt: skip
    return figures


def draw(rows: list[dict[str, Any]], path: Path) -> Path:
    """The mean curves of all contenders as a page."""
    charts = []
    for axis, label in ((0, "step"), (1, "minutes")):
        series = []
        for name in CONTENDERS:
            curves = [row["curve"] for row in rows if row["contender"] == name]
            points = [[mean(p[i] for p in at) for i in (axis, 2)] for at in zip(*curves, strict=False)]
            series += [Series(name, [(x, y) for x, y in points])] if points else []
        charts.append(line_chart("validation loss", series, x=label, width=720, height=360))
    path.write_text(page("Recurrence under attention", [Section("Loss", tuple(charts))]), encoding="utf-8")
    return path


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("text", type=Path, nargs="?", default=TEXT)
    arguments.add_argument("--out", type=Path, default=ROOT / "runs" / "hybrid")
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--table", action="store_true", help="train nothing; print and write what has been measured")
    arguments.add_argument("--tiny", action="store_true", help="does it run at all? Nothing is kept")
    said = parse(arguments)
    out = Path(tempfile.mkdtemp()) if said.tiny else said.out
    out.mkdir(parents=True, exist_ok=True)
    for seed in range(1, 1 + (0 if said.table else 1 if said.tiny else said.seeds)):
        for name in CONTENDERS:
            kept = out / f"{name}-{seed}.json"
            if not kept.exists():
                kept.write_text(json.dumps(run(out, said.text, name, seed, tiny=said.tiny)) + "\n", encoding="utf-8")
    rows = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob("*.json"))]
    figures = tabulate(rows)
    head = ("loss", "spread", "seeds", "minutes", "parameters")
    print(Table(("contender", *head), tuple((n, *(r.get(k) for k in head)) for n, r in figures.items())).markdown())
    print(draw(rows, (out if said.tiny else folder()) / "hybrid.html"))
    if not said.tiny:
        title = (
            "Recurrent layers under attention: a character language model of four layers, context 128, validation loss"
        )
        print(write("hybrid", title=title, command=f"python -m bench.hybrid --seeds {said.seeds}", figures=figures))


if __name__ == "__main__":
    main()
