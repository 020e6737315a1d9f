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
from pathlib import Path
from typing import Any

import sacrebleu

import regard
from bench import large
from bench.results import parse, write
from regard.data.text_files import read_lines
from regard.report.table import Table
from regard.training.run.log import read_log

DATA = Path("../shared/data/multi30k")
PAIRS, SIZES = 29_000, (5_000, 29_000, 5_000_000)
MINUTES = 40
"""Of the run on five million pairs."""


def command(*words: str, minutes: float | None = None) -> str:
    """A command, what it says shown and given; after so many minutes of training it is asked to stop."""
    said = []
    with subprocess.Popen([sys.executable, "-m", "regard", *words], stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        for line in child.stderr:
            print(line, end="", file=sys.stderr, flush=True)
            said.append(line)
            if minutes is not None and line.startswith("training: "):
                time.sleep(60 * minutes)
                child.send_signal(signal.SIGINT)
    if child.returncode not in (0, 130 if minutes else 0):
        raise SystemExit(f"regard {' '.join(words)} ended with {child.returncode}")
    return "".join(said)


def steps(log: Path) -> list[dict[str, Any]]:
    return [event for event in read_log(log) if event["event"] == "train"]


def first(count: int, folder: Path) -> list[Path]:
    """So many pairs of Multi30k."""
    paths = [folder / f"train.{language}" for language in ("en", "de")]
    for path in paths:
        lines = [*read_lines(DATA / f"{path.name}.gz")][:count]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return paths


def scored(run: Path) -> dict[str, Any]:
    inputs, references = ([*read_lines(DATA / f"test_2016_flickr.{language}.gz")] for language in ("en", "de"))
    outputs = regard.load(run).run(inputs)
    bleu, chrf = sacrebleu.BLEU(), sacrebleu.CHRF()
    found = {"bleu": round(bleu.corpus_score(outputs, [references]).score, 2)}
    found |= {"chrf": round(chrf.corpus_score(outputs, [references]).score, 2)}
    return {**found, "signature": str(bleu.get_signature())}


def facts(run: Path, said: str) -> dict[str, Any]:
    log = read_log(run / "log.jsonl")
    start, last = next(e for e in log if e["event"] == "start"), log[-1]
    chosen = [line.removeprefix("chosen: ") for line in said.splitlines() if line.startswith("chosen: ")]
    forecast = [line.split("about ")[1].split(" on this")[0] for line in said.splitlines() if "on this machine" in line]
    return {
        "chosen": chosen, "forecast": forecast[-1] if forecast else "", "parameters": start["parameters"],
        "steps": last["step"], "minutes": round(last["seconds"] / 60, 1),
    }  # fmt: skip


def main(words: Sequence[str] | None = None) -> None:
    arguments = argparse.ArgumentParser(prog="python -m bench.sizes", description=__doc__)
    arguments.add_argument("pairs", type=int, choices=SIZES)
    count = parse(arguments, words).pairs
    folder = Path("runs/sizes") / str(count)
    folder.mkdir(parents=True, exist_ok=True)
    run = folder / "run"
    if count <= PAIRS:
        paths, minutes, what = first(count, folder), None, f"{count:,} pairs of Multi30k En→De, raw text"
    else:
        paths, minutes = [folder / "a.txt", folder / "b.txt"], MINUTES
        what = f"{count:,} generated pairs, the first {MINUTES} minutes"
        large.corpus(count, (paths[0], paths[1]))
    said = command("train", "translate", *map(str, paths), "--out", str(run), "--fresh", minutes=minutes)
    figures = facts(run, said)
    if count <= PAIRS:
        figures |= scored(run)
    else:
        figures["loss"] = [round(event["loss"], 2) for event in steps(run / "log.jsonl")]
    print(Table(("figure", "value"), tuple((k, str(v)) for k, v in figures.items())).markdown())
    title = f"`regard train translate` with nothing set: {what}"
    name = f"translate-{count}"
    print(write(name, title=title, command=f"python -m bench.sizes {count}", figures=figures), file=sys.stderr)


if __name__ == "__main__":
    main()
