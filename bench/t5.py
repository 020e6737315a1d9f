"""One T5-shaped model for two tasks at once, against one for each: `python -m bench.t5`, about 8 minutes on two cores.

A model is pre-trained by span corruption on package descriptions. From it three others learn: to sum descriptions up in a
line (Debian), to say words (CMUdict), and both at once, each by its prefix, in as many steps as the two together. Run again
after a stop, it goes on where it was.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import regard
from bench.entry import Mode, find_data, parse
from bench.results import write
from regard.data.text_files import read_lines
from regard.metrics import METRICS
from regard.report.table import Table

TASKS = {"summarize": ("chrf", "exact"), "say": ("exact", "wer")}
"""What each is scored by."""
WEIGHT = 8.0
"""Words are short and a batch holds many: so often do they come that both tasks have half of the steps."""
MODEL = dict(family="t5", size="t5-v1.1-small", width=128, depth=3, heads=4, head_width=32, hidden=256)
STEPS = dict(pretrain=800, one=500, both=1000)
TINY = dict(pretrain=6, one=3, both=6)
Pair = tuple[str, str]


def debian(part: str) -> Iterator[Pair]:
    for line in read_lines(find_data("debian_descriptions", f"{part}.tsv.gz")):
        _, description, synopsis = line.split("\t")
        yield description, synopsis


def cmudict() -> Iterator[Pair]:
    """First pronunciations of words of letters, in an order that has nothing to do with the alphabet."""
    with gzip.open(find_data("cmudict", "cmudict.dict.gz"), "rt", encoding="utf-8") as file:
        rows = [line.split(" #")[0].split() for line in file]
    known = {word: " ".join(phones) for word, *phones in rows if word.isalpha()}
    yield from sorted(known.items(), key=lambda row: hashlib.sha256(row[0].encode()).digest())


def prepare(folder: Path, smoke: bool) -> None:
    """The files of the experiment: a text to pre-train on, and training, validation and test pairs of both tasks."""
    most = dict(train=400, valid=4, test=4) if smoke else dict(train=30_000, valid=300, test=1000)
    words = cmudict()
    for part, count in most.items():
        found = list(debian(part))[:count]
        _tsv(folder / f"summarize.{part}.tsv", found)
        _tsv(folder / f"say.{part}.tsv", [next(words) for _ in range(count)])
        if part == "train":
            (folder / "text.txt").write_text("".join(f"{text}\n" for text, _ in found), encoding="utf-8")


def _tsv(path: Path, pairs: list[Pair]) -> None:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")


def train(folder: Path, name: str, recipe: dict[str, Any], start: Path | None = None) -> regard.Model:
    return regard.train(recipe, out=folder / name, start=start)


def settings(steps: int, peak: float, tokens: int) -> dict[str, Any]:
    return {
        "steps": steps,
        "batch_tokens": 256 if Mode.smoke else tokens,
        "optimizer": {"kind": "muon"},
        "schedule": {"kind": "wsd", "lr": peak, "warmup": steps // 20, "decay": 0.5},
        "label_smoothing": 0.0,
        "validate_every": max(steps // 4, 1),
    }


def pretrain(folder: Path, steps: int, smoke: bool) -> regard.Model:
    vocabulary = {"kind": "unigram", "vocab": 1000 if smoke else 4000}
    data = {"train": [str(folder / "text.txt")], "documents": "line", "hold_out": 0.02, "tokenizer": vocabulary}
    recipe = {"task": "span", "data": {**data, "max_length": 192, "sentinels": 32}, "model": MODEL}
    return train(folder, "pretrain", {**recipe, "train": settings(steps, 3e-3, 4096)})


def tune(folder: Path, name: str, tasks: list[str], steps: int) -> regard.Model:
    weights = {"say": WEIGHT if len(tasks) > 1 else 1.0, "summarize": 1.0}
    train_, valid = (
        [{"paths": [str(folder / f"{t}.{part}.tsv")], "prefix": f"{t}: ", "weight": weights[t]} for t in tasks]
        for part in ("train", "valid")
    )
    recipe = {
        "task": "translate",
        "data": {"train": train_, "valid": valid, "metrics": ["chrf"]},
        "decode": {"beam": 4, **({"max_length": 6} if Mode.smoke else {})},
    }
    return train(folder, name, {**recipe, "train": settings(steps, 2e-3, 4096)}, start=folder / "pretrain")


def scores(folder: Path, name: str, model: regard.Model, tasks: list[str]) -> dict[str, float]:
    """Scores on the test pairs of each task, found once."""
    kept = folder / f"{name}.json"
    if not kept.exists():
        found: dict[str, float] = {}
        for task in tasks:
            pairs = [line.split("\t") for line in read_lines(folder / f"{task}.test.tsv")]
            outputs, wanted = model.run([f"{task}: {source}" for source, _ in pairs]), [target for _, target in pairs]
            found |= {f"{task}, {m}": round(METRICS[m].compute(outputs, wanted), 2) for m in TASKS[task]}
        kept.write_text(json.dumps(found), encoding="utf-8")
    return json.loads(kept.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    asked = parse(parser, out="runs/bench-t5")
    folder, steps, began = asked.out, TINY if asked.smoke else STEPS, time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "text.txt").exists():
        prepare(folder, asked.smoke)
    base = pretrain(folder, steps["pretrain"], asked.smoke)
    one: dict[str, float] = {}
    for task in TASKS:
        one |= scores(folder, task, tune(folder, task, [task], steps["one"]), [task])
    both = scores(folder, "both", tune(folder, "both", list(TASKS), steps["both"]), list(TASKS))
    rows = tuple((name, one[name], both[name]) for name in one)
    print(Table(("test score", "a model for each", "one model for both"), rows).markdown())
    figures: dict[str, Any] = {f"{name}, a model for each": value for name, value in one.items()}
    figures |= {f"{name}, one model for both": value for name, value in both.items()}
    figures |= {"parameters of each model": sum(p.numel() for p in base.net.parameters())}
    figures |= {f"steps, {name}": count for name, count in steps.items()}
    figures |= {"minutes of this call": round((time.monotonic() - began) / 60, 1)}
    title = "T5-shaped, pre-trained by span corruption: two tasks in one model against a model for each"
    print(write("t5-two-tasks", title=title, figures=figures))


if __name__ == "__main__":
    main()
