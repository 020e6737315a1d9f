"""A corpus larger than memory: ten million pairs prepared and trained on in under 2 GB of memory of our own.

`python -m bench.large` makes the pairs (words of two invented languages, as rare and as common as words are), then runs the
ordinary `regard train translate a.txt b.txt` in a process of its own and looks at its anonymous memory all the while. Pages of
mapped files are not in it: they are the system's, which drops them when somebody else needs the room.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from bench.entry import parse
from bench.launch import start
from bench.results import write
from regard.report.table import Table
from regard.training.run.log import read_log

LIMIT = 2000
"""Megabytes."""
VOCABULARY, BLOCK = 60_000, 1 << 16
STEPS = {"train.steps": 30, "train.validate_every": 30, "train.log_every": 10, "data.metrics": '["loss"]'}
SMOKE = {
    "train.steps": 3,
    "train.validate_every": 3,
    "train.log_every": 1,
    "train.batch_tokens": 256,
    "train.schedule.warmup": 1,
}
SMALL = {"model.width": 64, "model.depth": 2, "model.heads": 2, "model.hidden": 128}


@cache
def language(seed: int) -> list[str]:
    """So many different words of one to four syllables."""
    draw, syllables = np.random.default_rng(seed), [c + v for c in "bdfghklmnprstvwz" for v in "aeiouäö"]
    words: dict[str, None] = {}
    while len(words) < VOCABULARY:
        parts = draw.integers(len(syllables), size=(BLOCK, 4)).tolist()
        lengths = draw.integers(1, 5, size=BLOCK).tolist()
        words |= dict.fromkeys("".join(syllables[i] for i in p[:n]) for p, n in zip(parts, lengths, strict=True))
    return list(words)[:VOCABULARY]


def corpus(count: int, paths: tuple[Path, Path]) -> None:
    """Sentences of 6 to 20 words by Zipf's law, and the same sentences in the other language."""
    draw, languages = np.random.default_rng(1), [language(1), language(2)]
    often = np.cumsum(1 / (np.arange(VOCABULARY) + 3.0))
    with paths[0].open("w", encoding="utf-8") as one, paths[1].open("w", encoding="utf-8") as other:
        for start in range(0, count, BLOCK):
            ends = np.cumsum(draw.integers(6, 21, size=min(BLOCK, count - start))).tolist()
            ids = np.searchsorted(often, draw.random(ends[-1]) * often[-1]).tolist()
            for file, words in zip((one, other), languages, strict=True):
                said = [words[i] for i in ids]
                spans = zip([0, *ends], ends, strict=False)
                file.write("".join([" ".join(said[a:b]) + "\n" for a, b in spans]))


def anonymous(process: int) -> float:
    """Megabytes of anonymous memory of a process and its children."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:  # it is gone
        return 0.0
    own = sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon:")) / 1024
    return own + sum(anonymous(int(child)) for child in children)


def watched(words: Sequence[str], run: Path) -> dict[str, dict[str, float]]:
    """Run a module with its arguments; of its preparation and its training the seconds and the most memory."""
    found = {part: {"seconds": 0.0, "peak MB": 0.0} for part in ("prepare", "train")}
    child = start(words)
    try:
        for passed in _ticks(0.2):
            part = found["train" if (run / "log.jsonl").exists() else "prepare"]
            part["seconds"] += passed
            part["peak MB"] = max(part["peak MB"], anonymous(child.pid))
            if child.poll() is not None:
                break
    finally:
        child.kill()
        child.wait()
    if child.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {child.returncode}")
    return found


def _ticks(seconds: float) -> Iterator[float]:
    while True:
        began = time.monotonic()
        time.sleep(seconds)
        yield time.monotonic() - began


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--pairs", type=int, default=10_000_000)
    said = parse(arguments, out="runs/large")
    if said.smoke:
        said.pairs = 200
    shutil.rmtree(said.out / "run", ignore_errors=True)
    said.out.mkdir(parents=True, exist_ok=True)
    paths = said.out / "a.txt", said.out / "b.txt"
    corpus(said.pairs, paths)
    settings = STEPS | SMALL | (SMOKE if said.smoke else {})
    run, asked = said.out / "run", [w for k, v in settings.items() for w in ("--set", f"{k}={v}")]
    words = ["regard", "train", "translate", *map(str, paths), "--out", str(run), *asked]
    found = watched(words, run)
    kept = sum(file.stat().st_size for file in (run / "tokens").rglob("*.ids"))
    seconds = found["prepare"]["seconds"]
    figures = {
        "pairs": said.pairs,
        "text GB": round(sum(path.stat().st_size for path in paths) / 1e9, 2),
        "tokens": kept // 4,
        "tokens on disk GB": round(kept / 1e9, 2),
        "minutes of preparation": round(seconds / 60, 1),
        "pairs a second": round(said.pairs / seconds),
        "peak MB preparing": round(found["prepare"]["peak MB"]),
        "peak MB training": round(found["train"]["peak MB"]),
        "loss": [round(event["loss"], 3) for event in read_log(run / "log.jsonl") if event["event"] == "train"],
    }
    print(Table(("figure", "value"), tuple((k, str(v)) for k, v in figures.items())).markdown())
    title = f"{said.pairs:,} pairs prepared and trained on, under {LIMIT} MB of anonymous memory"
    print(write("large", title=title, figures=figures), file=sys.stderr)
    peak = max(part["peak MB"] for part in found.values())
    if peak >= LIMIT:
        raise SystemExit(f"{peak:.0f} MB of anonymous memory, more than {LIMIT}")


if __name__ == "__main__":
    main()
