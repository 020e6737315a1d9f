"""Corpora larger than memory: the most anonymous memory while each task prepares and trains on made text.

`python -m bench.large_corpora --task lm --size 1GB` makes the text (words of an invented language, as rare and as common as
words are), runs the ordinary `regard train` in a process of its own, and looks at its anonymous memory all the while. Pages of
mapped files are not in it: they are the system's, which drops them when somebody else needs the room. Several tasks and sizes
are measured one after another: `--task lm mlm --size 512MB 1GB`; the peaks of a task should not depend on the size.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.entry import Mode, parse
from bench.large import BLOCK, VOCABULARY, language, watched
from bench.results import folder, write
from regard.report.table import Table

LIMIT = 1500
"""Megabytes."""
REPEAT = 16_000_000
"""Bytes of text after which it repeats."""
UNITS = {"kB": 10**3, "MB": 10**6, "GB": 10**9}
TINY = {"width": 32, "depth": 1, "heads": 2, "hidden": 64}
TRAIN = {"steps": 20, "validate_every": 20, "log_every": 10, "batch_tokens": 2048, "schedule": {"kind": "constant"}}
SMOKE = {"steps": 2, "validate_every": 2, "log_every": 1, "batch_tokens": 256}
SMALL_BPE, SMALL_WORDPIECE = {"kind": "bpe", "vocab": 2000}, {"kind": "wordpiece", "vocab": 2000}
ENCODER = {"family": "bert", **TINY}
RECIPES: dict[str, dict[str, object]] = {
    "lm": {"data": {"tokenizer": SMALL_BPE}, "model": {"family": "gpt", **TINY}},
    "mlm": {"data": {"tokenizer": SMALL_WORDPIECE}, "model": ENCODER},
    "span": {"data": {"tokenizer": SMALL_BPE, "max_length": 128}, "model": {"family": "t5", **TINY}},
    "classify": {"data": {"tokenizer": SMALL_BPE}, "model": ENCODER},
    "tag": {"data": {"tokenizer": SMALL_BPE}, "model": ENCODER},
    "embed": {"data": {"tokenizer": SMALL_BPE}, "model": ENCODER},
    "image": {"data": {}, "model": {"family": "vit", "patch": 8, **TINY}},
}
"""A small recipe for each task."""


def sentences(seed: int) -> Iterator[list[str]]:
    """Sentences of 6 to 20 words by Zipf's law, without end, as lists of words."""
    draw, words = np.random.default_rng(seed), language(1)
    often = np.cumsum(1 / (np.arange(VOCABULARY) + 3.0))
    while True:
        ends = np.cumsum(draw.integers(6, 21, size=BLOCK)).tolist()
        ids = np.searchsorted(often, draw.random(ends[-1]) * often[-1]).tolist()
        for start, end in zip([0, *ends], ends, strict=False):
            yield [words[i] for i in ids[start:end]]


def rows(task: str, seed: int) -> Iterator[str]:
    """Lines of the file that a task reads."""
    made = sentences(seed)
    for number, words in enumerate(made):
        text = " ".join(words)
        if task == "classify":
            yield f"{text}\t{'abcdefgh'[len(words) % 8]}\n"
        elif task == "tag":
            yield f"{text}\t{' '.join('XYZ'[len(word) % 3] for word in words)}\n"
        elif task == "embed":
            yield f"{text}\t{' '.join(reversed(words))}\n"
        else:
            yield f"{text}.\n" + "\n" * (number % 12 == 11)


def make_text(task: str, size: int, path: Path, seed: int = 1) -> None:
    """Write so many bytes of made text; it repeats after a while."""
    made, held = rows(task, seed), list[str]()
    while sum(map(len, held)) < min(size, REPEAT):
        held += [next(made) for _ in range(1000)]
    block, written = "".join(held).encode(), 0
    with path.open("wb") as file:
        while written < size:
            written += file.write(block)


def make_images(size: int, folder: Path) -> None:
    """Write so many bytes of images, half of them brighter than the other half."""
    from PIL import Image

    draw, written, number = np.random.default_rng(1), 0, 0
    for name in ("bright", "dark"):
        (folder / name).mkdir(parents=True)
    while written < size:
        bright = number % 2
        pixels = draw.integers(100 * bright, 100 * bright + 100, (160, 160, 3), np.uint8)
        path = folder / ("dark", "bright")[bright] / f"{number}.bmp"
        Image.fromarray(pixels).save(path)
        written += path.stat().st_size
        number += 1


def make_data(task: str, size: int, place: Path) -> list[str]:
    """Make data of a size, and return the words of the command line that name it."""
    if task == "image":
        for name, share in (("train", size), ("valid", 2_000_000)):
            make_images(share, place / name)
        return [str(place / "train"), "--valid", str(place / "valid")]
    ending = "txt" if task in ("lm", "mlm", "span") else "tsv"
    for name, share in (("train", size), ("valid", min(size, 200_000))):
        make_text(task, share, place / f"{name}.{ending}", 1 if name == "train" else 2)
    return [str(place / f"train.{ending}"), "--valid", str(place / f"valid.{ending}")]


def measure(task: str, size: int, place: Path) -> dict[str, float]:
    """The seconds and the most megabytes of preparing and of training."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    recipe = place / "recipe.json"
    data = make_data(task, size, place)
    recipe.write_text(json.dumps({"task": task, "train": TRAIN | (SMOKE if Mode.smoke else {}), **RECIPES[task]}))
    recipe.rename(place / "recipe.yaml")  # JSON is YAML
    run, began = place / "run", time.monotonic()
    words = ["regard", "train", str(place / "recipe.yaml"), *data, "--out", str(run), "--quiet"]
    found = watched(words, run)
    tokens = sum(file.stat().st_size for file in (run / "tokens").rglob("*") if file.is_file())
    shutil.rmtree(place)
    return {
        "peak MB preparing": round(found["prepare"]["peak MB"]),
        "peak MB training": round(found["train"]["peak MB"]),
        "minutes": round((time.monotonic() - began) / 60, 1),
        "stored GB": round(tokens / 1e9, 2),
    }


def read_size(text: str) -> int:
    """`512MB` → 512,000,000."""
    for unit, factor in UNITS.items():
        if text.endswith(unit):
            return round(float(text.removesuffix(unit)) * factor)
    raise argparse.ArgumentTypeError(f"should be a number with {', '.join(UNITS)}, got {text!r}")


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m bench.large_corpora", description=__doc__)
    arguments.add_argument("--task", nargs="+", choices=RECIPES, default=list(RECIPES))
    arguments.add_argument("--size", nargs="+", type=str, default=["512MB", "1GB"])
    asked = parse(arguments, out="runs/large-corpora")
    if asked.smoke:
        asked.size = ["100kB"]
    sizes = {text: read_size(text) for text in asked.size}
    known = folder() / "large-corpora.json"
    figures = json.loads(known.read_text(encoding="utf-8"))["figures"] if known.exists() else {}
    for task in asked.task:
        for text, size in sizes.items():
            found = measure(task, size, asked.out / task)
            figures |= {f"{task}, {text}, {name}": value for name, value in found.items()}
            print(f"{task}, {text}: {found}", file=sys.stderr, flush=True)
            title = "Anonymous memory while preparing and training on large corpora"
            write("large-corpora", title=title, command="python -m bench.large_corpora", figures=figures)
    print(Table(("figure", "value"), tuple((k, str(v)) for k, v in figures.items())).markdown())
    peaks = {k: v for k, v in figures.items() if "peak" in k and v >= LIMIT}
    if peaks:
        raise SystemExit(f"more than {LIMIT} MB of anonymous memory: {peaks}")


if __name__ == "__main__":
    main()
