"""Every mixer on the same work: as a decoder on characters at context 1024, as an encoder on the structure of long proteins.

`python -m bench.mixers` gives each mixer the same parameters (the feed-forward layers make up for what attention
lacks), batches and steps, and a process of its own, so that its peak memory is its own; about twenty minutes on two cores. What
is done is kept: the same command again goes on.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from bench.entry import Mode, cut, find_data, parse
from bench.launch import call
from bench.results import write
from regard.families import bert, gpt
from regard.machine import peak_memory
from regard.model.model_spec import ModelSpec
from regard.nn.mixers import MIXERS
from regard.report.table import Table

LENGTH, SMOKE_LENGTH = 1024, 128
SHAPE: dict[str, Any] = dict(width=128, depth=2, heads=4, dropout=0.0)
HIDDEN = 512
SETTINGS: dict[str, dict[str, Any]] = {
    "performer": {"features": 64},
    "local": {"reach": 64},
    "sparse": {"pattern": {"kind": "strided", "stride": 32}},
    "xl_memory": {"memory_length": LENGTH},
}
"""What a mixer must be told beside its heads; the rest is as it comes."""
SIDES = {"decode": "decoder", "encode": "encoder"}
TRAIN: dict[str, Any] = {
    "seed": 1,
    "batch_tokens": 4 * LENGTH,
    "optimizer": {"kind": "muon"},
    "label_smoothing": 0.0,
    "precision": "float32",
}
CHAINS, JUDGES, SHORTEST = 1200, 60, 384
"""Proteins to learn from and to be judged by, of at least so many residues."""


def mixers(work: str) -> list[str]:
    return [kind for kind, mixer in MIXERS.items() if work == "encode" or mixer.can.causal]


def model(kind: str, work: str, hidden: int) -> dict[str, Any]:
    """The model part of a recipe: a family with this mixer in every block."""
    block = {"mix": {"kind": kind, **SETTINGS.get(kind, {})}}
    family = "gpt" if work == "decode" else "bert"
    return {**SHAPE, "family": family, "hidden": hidden, SIDES[work]: {"block": block}}


def matched(work: str) -> dict[str, int]:
    """For every mixer the feed-forward width that gives it as many parameters as the largest has."""

    def count(kind: str, hidden: int) -> int:
        family: Any = gpt.spec if work == "decode" else bert.spec
        base: ModelSpec = family(**SHAPE, hidden=hidden, vocab=32, length=LENGTH)
        with torch.device("meta"):
            made = base.overlay({SIDES[work]: model(kind, work, hidden)[SIDES[work]]}).build()
        return sum(p.numel() for p in made.parameters())

    plain = {kind: count(kind, HIDDEN) for kind in mixers(work)}
    step = count("full", HIDDEN + 1) - plain["full"]
    return {kind: HIDDEN + round((max(plain.values()) - number) / step) for kind, number in plain.items()}


def recipe(kind: str, work: str, hidden: int, steps: int) -> dict[str, Any]:
    schedule = {"kind": "cosine", "lr": 4.0e-3, "warmup": min(20, max(steps // 4, 1)), "min_lr_ratio": 0.1}
    train = TRAIN | {"steps": steps, "validate_every": steps, "schedule": schedule}
    if Mode.smoke:
        train["batch_tokens"] = LENGTH
    if work == "decode":
        return {"task": "lm", "data": {"context": LENGTH}, "model": model(kind, work, hidden), "train": train}
    data = {"unit": "letters", "tokenizer": {"kind": "chars"}, "max_length": LENGTH, "dropout": 0.0}
    return {"task": "tag", "data": data, "model": model(kind, work, hidden), "train": train}


def proteins(path: Path, out: Path) -> list[Path]:
    """Long chains and their secondary structure, as two tables: to learn from and to be judged by."""
    files = [out / "proteins.train.tsv", out / "proteins.valid.tsv"]
    if all(file.exists() for file in files):
        return files
    learned, judged = (4, 2) if Mode.smoke else (CHAINS, JUDGES)
    long = [*islice((row for row in _chains(path) if SHORTEST <= len(row[0]) < LENGTH - 2), learned + judged)]
    out.mkdir(parents=True, exist_ok=True)
    for file, rows in zip(files, (long[:learned], long[learned:]), strict=True):
        file.write_text("text\tlabels\n" + "".join(f"{text}\t{labels}\n" for text, labels in rows))
    return files


def _chains(path: Path) -> Iterator[tuple[str, str]]:
    with gzip.open(path, "rt") as lines:
        for line in lines:
            _, text, labels = line.rstrip("\n").split("\t")
            yield text, labels


def work_on(kind: str, work: str, hidden: int, steps: int, files: list[str], out: Path) -> None:
    """One contender, in a process of its own: train, and print what it took."""
    import regard
    from regard.training.run.log import read_log

    data, valid = (files, []) if work == "decode" else (files[:1], files[1:])
    made = regard.train(recipe(kind, work, hidden, steps), data, valid=valid, out=out, quiet=True)
    done = read_log(out / "log.jsonl")[-1]
    peak = peak_memory() / 2**20
    count = sum(p.numel() for p in made.net.parameters())
    print(json.dumps({"scores": done["scores"], "seconds": done["seconds"], "peak_mb": peak, "parameters": count}))


def measured(kind: str, work: str, hidden: int, steps: int, files: list[str], out: Path) -> dict[str, Any]:
    """What `work_on` printed, now or in an earlier call."""
    kept = out / f"{work}-{kind}.json"
    if not kept.exists():
        words = ["bench.mixers", *["--smoke"] * Mode.smoke, *files, "--worker", kind, "--work", work]
        words += ["--hidden", str(hidden), "--steps", str(steps), "--out", str(out)]
        kept.write_text(call(words).splitlines()[-1])
    found: dict[str, Any] = json.loads(kept.read_text())
    print(f"{work} {kind}: {found}", file=sys.stderr, flush=True)
    return found


def main() -> None:
    global LENGTH, SHORTEST
    arguments = argparse.ArgumentParser(description=__doc__)
    what = "a text, and chains with their structure (.tsv.gz); by default tinyshakespeare and the training file of protein_ss"
    arguments.add_argument("files", nargs="*", type=Path, help=what)
    arguments.add_argument("--steps", type=int, default=250)
    arguments.add_argument("--only", action="append", help="a mixer; may be repeated, and writes no result")
    arguments.add_argument("--worker")
    arguments.add_argument("--work", choices=SIDES)
    arguments.add_argument("--hidden", type=int)
    said = parse(arguments, out="runs/mixers")
    if said.smoke:
        LENGTH, SHORTEST = SMOKE_LENGTH, SMOKE_LENGTH // 2
    if said.worker:
        files = [str(path) for path in (said.files[:1] if said.work == "decode" else said.files)]
        return work_on(said.worker, said.work, said.hidden, said.steps, files, said.out / f"{said.work}-{said.worker}")
    given = said.files or [
        find_data("tinyshakespeare", "input.txt"),
        find_data("protein_ss", "casp12_training30.tsv.gz"),
    ]
    if len(given) != 2:
        arguments.error(f"expected a text and a table of chains, got {len(given)} files")
    names = [path.parent.name for path in given]
    if said.smoke:
        said.steps, given = 2, [cut(given[0], 500), given[1]]
    text, chains = str(given[0]), [str(path) for path in proteins(given[1], said.out)]
    figures: dict[str, dict[str, Any]] = {}
    for work, score in (("decode", "loss"), ("encode", "letter_accuracy")):
        for kind, hidden in matched(work).items():
            if said.only and kind not in said.only:
                continue
            files = [text, text] if work == "decode" else chains
            found = measured(kind, work, hidden, said.steps, files, said.out)
            figures[f"{work} {kind}"] = {
                score: round(found["scores"][score], 4), "seconds": round(found["seconds"], 1),
                "peak MB": round(found["peak_mb"]), "parameters": found["parameters"],
            }  # fmt: skip
    rows = tuple((name, *list(found.values())) for name, found in figures.items())
    print(Table(("mixer", "loss or accuracy", "seconds", "peak MB", "parameters"), rows).markdown())
    if not said.only:
        title = (
            f"Every mixer: {names[0]} at context {LENGTH}, {names[1]} (chains of {SHORTEST} to {LENGTH - 2} residues)"
        )
        facts = {"steps": said.steps, "tokens a step": 4 * LENGTH, "threads": torch.get_num_threads()}
        print(write("mixers", title=title, figures=figures, **facts), file=sys.stderr)
    return None


if __name__ == "__main__":
    main()
