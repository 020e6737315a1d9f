"""A tiny example of every task that puts an encoder to use: its recipe, its data, and inputs to try. Laws run over these."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from regard.training.request import TrainRequest

BERT: dict[str, Any] = {"family": "bert", "width": 16, "depth": 1, "heads": 2, "hidden": 32, "dropout": 0.1}
TRAIN: dict[str, Any] = {
    "steps": 6,
    "batch_tokens": 96,
    "schedule": {"kind": "constant", "lr": 3e-3},
    "validate_every": 3,
    "save_every": 2,
    "log_every": 1,
    "threads": 1,
    "precision": "float32",
}
WORDS = ["good fine nice", "a bad poor day", "one fine day", "bad", "so poor a nice one", "day by day it is fine"]
CHARS: dict[str, Any] = {"kind": "chars"}


@dataclass(frozen=True)
class Use:
    """How to train a tiny model of a task, and what to run it on."""

    task: str
    name: str
    write: Callable[[Path], str]
    """Puts the data in a folder and gives its name."""
    inputs: tuple[str, ...]
    data: dict[str, Any]
    model: dict[str, Any] = field(default_factory=lambda: BERT)

    def order(self, folder: Path, out: Path) -> TrainRequest:
        recipe = {"task": self.task, "data": self.data, "model": self.model, "train": TRAIN}
        return TrainRequest(recipe, (self.write(folder),), out=str(out), quiet=True)

    def __str__(self) -> str:
        return f"{self.task}: {self.name}"


def table(*rows: str, name: str = "x.tsv") -> Callable[[Path], str]:
    def write(folder: Path) -> str:
        (folder / name).write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
        return str(folder / name)

    return write


def digits(folder: Path) -> str:
    """IDX files of small pictures; the class is where they are bright."""
    draw = np.random.Generator(np.random.PCG64(0))
    for part, count in (("train", 40), ("t10k", 12)):
        labels = np.arange(count, dtype=np.uint8) % 2
        pixels = draw.integers(0, 60, (count, 8, 8), dtype=np.uint8)
        pixels[np.arange(count), labels * 4 + 1] += 150
        for what, array in (("images-idx3", pixels), ("labels-idx1", labels)):
            head = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
            (folder / f"{part}-{what}-ubyte.gz").write_bytes(gzip.compress(head + array.tobytes()))
    return str(folder)


LABELLED = [f"{text}\t{'low' if 'bad' in text or 'poor' in text else 'high'}" for text in WORDS] * 4
TAGGED = [f"{text}\t{' '.join('N' if w == 'day' else 'X' for w in text.split())}" for text in WORDS] * 4
STORY = ["1 Mary went home.", "2 John left.", "3 Where is Mary? \thome\t1", "4 Mary left.", "5 John went home.",
         "6 Mary went home.", "7 Where is John? \thome\t5"]  # fmt: skip
SCALE = [[60 + i % 6] for i in range(14)]
CHORALE = [[72 + i % 3, 67, 64, 48] for i in range(14)]
ACTIONS = [f"u{user} {(user + step) % 7}" for user in range(12) for step in range(3 + user % 5)]
RESIDUES = ["acdacd", "ddca", "aac", "cdcdacda"]
USES = [
    Use("classify", "texts", table(*LABELLED), ("a fine one", "so bad a day"), {"tokenizer": "words", "max_length": 12}),
    Use("classify", "pairs", table(*(f"a {i}\tb {row}" for i, row in enumerate(LABELLED))), ("one\ta fine one", "a\tbad"),
        {"tokenizer": CHARS, "max_length": 24, "pair": True, "pool": "mean"}),
    Use("tag", "words", table(*TAGGED), ("a fine day", "so bad a nice day it is"),
        {"tokenizer": {"kind": "bpe", "vocab": 40}, "max_length": 8}),
    Use("tag", "letters", table(*(f"{i}\t{s}\t{s.translate(str.maketrans('acd', 'HEH'))}" for i, s in enumerate(RESIDUES * 4))),
        ("acd", "ddddaaaacccc"), {"tokenizer": CHARS, "max_length": 8, "unit": "letters", "columns": [2, 3]}),
    Use("embed", "pairs", table(*(f"{t} {i}\t{i} {t}" for i, t in enumerate(WORDS * 5))), ("a fine day", "so bad"),
        {"tokenizer": CHARS, "max_length": 32}),
    Use("babi", "stories", table(*STORY * 5, name="qa.txt"),
        ("Mary went home. Where is Mary?", "Mary left. John went home. Where is John?"), {"memory": 3},
        {"family": "memn2n", "width": 6, "linear_start": 2}),
    Use("frames", "rolls", table(json.dumps([SCALE[i:] for i in range(8)]), name="x.json"),
        ("[[60], [61]]", "[[65], [], [60, 62]]"),
        {"keys": 6, "lowest": 60}, {"family": "rnn", "width": 8, "depth": 1, "dropout": 0.1}),
    Use("music", "voices", table(json.dumps([CHORALE[i:] for i in range(8)]), name="x.json"),
        ("S:C5 A:G4 T:E4 B:C3 S:D5 A:G4_ T:E4_ B:C3_", "S:C5 A:- T:- B:- S:C5_ A:- T:- B:- S:D5 A:- T:- B:-"),
        {"encoding": "four_voices", "context": 16, "transpose": 1},
        {"family": "gpt", "width": 8, "depth": 1, "heads": 2, "hidden": 16, "dropout": 0.1}),
    Use("recommend", "next", table(*ACTIONS, name="x.txt"), ("1; 2", "3; 4; 5"), {"length": 4, "negatives": 3},
        {"family": "sasrec", "width": 8, "depth": 1}),
    Use("recommend", "cloze", table("user,item,time", *(row.replace(" ", ",") + f",{i}" for i, row in enumerate(ACTIONS)),
        name="x.csv"), ("1; 2", "3; 4; 5"), {"length": 4, "negatives": 3},
        {"family": "bert4rec", "width": 8, "depth": 1}),
    Use("image", "digits", digits, (), {"augment": {"shift": 1, "flip": True, "hole": 2}},
        {**BERT, "family": "vit", "patch": 4}),
]  # fmt: skip
