"""`regard train translate a b` with nothing set, at three sizes: does it choose well?

`python -m bench.sizes 5000` and `29000` train on so many pairs of Multi30k (raw text) to the end and score test 2016 (sacreBLEU
13a, cased). `python -m bench.sizes 5000000` makes five million pairs of two invented languages and trains for the first forty
minutes of the run that it plans, which would go on for days. Results are `translate-5000.json` and so on.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import sacrebleu

import regard
from bench import large
from bench.entry import Mode, find_data, parse
from bench.launch import start
from bench.results import write
from regard.data.text_files import read_lines
from regard.report.table import Table
from regard.training.run.log import read_log

PAIRS, SIZES = 29_000, (5_000, 29_000, 5_000_000)
SMOKE = [
    "--set",
    "train.epochs=null",
    "--set",
    "train.steps=2",
    "--set",
    "train.validate_every=2",
    "--set",
    "train.log_every=1",
]
MINUTES = 40
"""Of the run on five million pairs."""


def command(*words: str, minutes: float | None = None) -> str:
    """A command, what it says shown and given; after so many minutes of training it is asked to stop."""
    said = []
    child = start(["regard", *words], stderr=subprocess.PIPE)
    assert child.stderr is not None
    with child.stderr as lines:
        for line in lines:
            print(line, end="", file=sys.stderr, flush=True)
            said.append(line)
            if minutes is not None and line.startswith("training: "):
                time.sleep(60 * minutes)
                child.send_signal(signal.SIGINT)
    if (code := child.wait()) not in (0, 130 if minutes else 0):
        raise SystemExit(f"regard {' '.join(words)} ended with {code}")
    return "".join(said)


def steps(log: Path) -> list[dict[str, Any]]:
    return [event for event in read_log(log) if event["event"] == "train"]


def first(count: int, folder: Path) -> list[Path]:
    """So many pairs of Multi30k."""
    paths = [folder / f"train.{language}" for language in ("en", "de")]
    for path in paths:
        lines = [*read_lines(find_data("multi30k", f"{path.name}.gz"))][:count]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return paths


def scored(run: Path) -> dict[str, Any]:
    names = (f"test_2016_flickr.{language}.gz" for language in ("en", "de"))
    inputs, references = (
        [*islice(read_lines(find_data("multi30k", name)), 4 if Mode.smoke else None)] for name in names
    )
    outputs = regard.load(run).run(inputs)
    bleu, chrf = sacrebleu.BLEU(), sacrebleu.CHRF()
    found = {"bleu": round(bleu.corpus_score(outputs, [references]).score, 2)}
    found |= {"chrf": round(chrf.corpus_score(outputs, [references]).score, 2)}
    return {**found, "signature": str(bleu.get_signature())}


def facts(run: Path, said: str) -> dict[str, Any]:
    log = read_log(run / "log.jsonl")
    start = next(e for e in log if e["event"] == "start")
    last = next(e for e in reversed(log) if "step" in e and "seconds" in e)
    chosen = [line.removeprefix("chosen: ") for line in said.splitlines() if line.startswith("chosen: ")]
    forecast = [
        line.split("about ")[1].split(" on this")[0]
        for line in said.splitlines()
        if line.startswith("training: ") and "about " in line
    ]
    return {
        "chosen": chosen, "forecast": forecast[-1] if forecast else "", "parameters": start["parameters"],
        "steps": last["step"], "minutes": round(last["seconds"] / 60, 1),
    }  # fmt: skip


def main(words: Sequence[str] | None = None) -> None:
    arguments = argparse.ArgumentParser(prog="python -m bench.sizes", description=__doc__)
    arguments.add_argument("pairs", type=int, choices=SIZES)
    asked = parse(arguments, words, out="runs/sizes")
    count: int = asked.pairs
    folder = asked.out / str(count)
    folder.mkdir(parents=True, exist_ok=True)
    run, some = folder / "run", 200 if asked.smoke else count
    if count <= PAIRS:
        paths, minutes, what = first(some, folder), None, f"{count:,} pairs of Multi30k En→De, raw text"
    else:
        paths, minutes = [folder / "a.txt", folder / "b.txt"], 0.01 if asked.smoke else MINUTES
        what = f"{count:,} generated pairs, the first {MINUTES} minutes"
        large.corpus(some, (paths[0], paths[1]))
    more = [*SMOKE, *(["--set", "train.steps=100"] if minutes else [])] if asked.smoke else []
    said = command("train", "translate", *map(str, paths), "--out", str(run), "--fresh", *more, minutes=minutes)
    figures = facts(run, said)
    if count <= PAIRS:
        figures |= scored(run)
    else:
        figures["loss"] = [round(event["loss"], 2) for event in steps(run / "log.jsonl")]
    print(Table(("figure", "value"), tuple((k, str(v)) for k, v in figures.items())).markdown())
    title = f"`regard train translate` with nothing set: {what}"
    name = f"translate-{count}"
    print(write(name, title=title, figures=figures), file=sys.stderr)


if __name__ == "__main__":
    main()
