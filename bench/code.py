"""Code completion on Python's standard library: `python -m bench.code`, about an hour on one core.

The recipe `code` is trained twice on the same files, three times as long as it comes (about three epochs): with
fill-in-the-middle, and its twin from left to right alone. Files are
split by the hash of their names: a twentieth for the test, a twentieth for validation, the rest for training. The test files
are read once, at the end:

- every file, from left to right: accuracy per token of Python (all its pieces right) and bits per byte
- the rest of lines, from a random token on: exact match, edit similarity, and how many files compile with the completed line;
  the model with fill-in-the-middle also reads what comes after, or does without
- random middles of one to four lines: bits per byte of the middle
- functions whose body is written by the model: how many compile, and one of them

A stopped bench goes on.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import regard
from bench.entry import parse
from bench.results import write
from regard.data.cursor import Cursor
from regard.data.example_rng import Rng
from regard.data.source_files import SourceFile, list_library
from regard.data.text_files import read_text
from regard.metrics import METRICS
from regard.metrics.bootstrap import bootstrap
from regard.metrics.items import Items, count_items, ratio
from regard.tasks.code import Code
from regard.tasks.common.text_corpus import Texts
from regard.training.run.log import read_log

TWENTIETH = 0.05
TWINS = {"fim": {}, "left to right": {"data.fim.rate": 0.0}}
LONGER = {"train.steps": 3600, "train.validate_every": 1200}
LINES, MIDDLES, BODIES = 1000, 500, 100
"""How many lines are completed, middles scored, and bodies of functions written."""
LONGEST = 60
"""Tokens of the longest middle."""
TINY = {
    "train.steps": 6, "train.schedule.warmup": 1, "train.validate_every": 6, "model.width": 32, "model.hidden": 64,
    "model.depth": 1, "data.context": 128, "data.lines": 4,
}  # fmt: skip


def split_library(files: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
    """Files for the test, for validation and for training, by the hash of their names."""
    hashed = sorted(files, key=lambda file: hashlib.sha256(file.name.encode()).digest())
    n = round(TWENTIETH * len(files))
    parts = {"test": hashed[:n], "valid": hashed[n : 2 * n], "train": hashed[2 * n :]}
    return {part: sorted(some, key=lambda file: file.name) for part, some in parts.items()}


def train(
    name: str, parts: dict[str, list[SourceFile]], out: Path, seed: int, *, smoke: bool
) -> tuple[regard.Model, Any]:
    """One of the twins, and what its run says of itself."""
    files = {part: [str(file.path) for file in some] for part, some in parts.items()}
    changes = {"data.train": files["train"], "data.valid": files["valid"], "train.seed": seed, **LONGER, **TWINS[name]}
    folder = out / name.replace(" ", "-")
    model = regard.train("code", out=folder, set={**changes, **(TINY if smoke else {})})
    log = read_log(folder / "log.jsonl")
    start, done = (next(e for e in reversed(log) if e["event"] == kind) for kind in ("start", "done"))
    return model, {"minutes": round(done["seconds"] / 60, 1), "parameters": start["parameters"], "steps": done["step"]}


def draw_middles(texts: Sequence[str], count: int, seed: int = 0) -> list[tuple[Cursor, str]]:
    """Random middles of one to four lines, from and to the middle of a line, each with what is around it."""
    rng, out = Rng(seed), list[tuple[Cursor, str]]()
    while len(out) < count:
        text = texts[rng.integer(len(texts))]
        lines = text.split("\n")
        first = rng.integer(len(lines))
        last = min(first + rng.integer(4), len(lines) - 1)
        begin = sum(len(line) + 1 for line in lines[:first]) + rng.integer(len(lines[first]) + 1)
        end = sum(len(line) + 1 for line in lines[:last]) + rng.integer(len(lines[last]) + 1)
        if begin < end and text[begin:end].strip():
            out.append((Cursor(text[:begin], text[end:]), text[begin:end]))
    return out


def draw_bodies(texts: Sequence[str], count: int) -> list[tuple[Cursor, str, str]]:
    """Short functions without their bodies: the cursor, the head, and what is after the body."""
    found = []
    for text in texts:
        lines = text.splitlines(keepends=True)
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.FunctionDef) or not 1 <= (node.end_lineno or 0) - node.body[0].lineno <= 4:
                continue
            first = node.body[0].lineno - 1
            if first < node.lineno or node.decorator_list:
                continue
            before, after = "".join(lines[:first]), "".join(lines[node.end_lineno :])
            found.append((Cursor(before, after), "".join(lines[node.lineno - 1 : first]), after))
    chosen = Rng(1).permutation(len(found))[:count]
    return [found[i] for i in sorted(chosen.tolist())]


def does_compile(source: str) -> bool:
    try:
        compile(source, "completion", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def list_ways(inputs: Sequence[Cursor]) -> dict[str, tuple[str, Sequence[Cursor]]]:
    """Who completes what: the twin first, to which the others are compared."""
    return {
        "left to right": ("left to right", inputs),
        "fim": ("fim", inputs),
        "fim, without what comes after": ("fim", [Cursor(cursor.before) for cursor in inputs]),
    }


def compare(metric: str, ways: Sequence[str], items: Sequence[Items], *, higher: bool) -> dict[str, dict[str, Any]]:
    """For each way its score, and the difference to the first, with 95 % intervals."""
    boot, out = bootstrap(items, higher=higher), dict[str, dict[str, Any]]()
    for place, name in enumerate(ways):
        score = boot.scores[place]
        out[name] = {metric: round(score.score, 3), f"{metric}, interval": [round(score.low, 3), round(score.high, 3)]}
        if place:
            gap = boot.differences[0, place]
            out[name] |= {f"{metric}, less the twin's": round(gap.difference, 3)}
            out[name] |= {f"{metric}, interval of that": [round(gap.low, 3), round(gap.high, 3)]}
    return out


def score_lines(models: dict[str, regard.Model], texts: list[str], count: int) -> dict[str, Any]:
    """Exact match and edit similarity of the rest of lines."""
    task = models["fim"].task
    assert isinstance(task, Code)
    (trial,) = Code(dataclasses.replace(task.settings, lines=count), task.tokenizer).eval_sets(Texts(texts))
    cursors = [cursor for cursor in trial.inputs if isinstance(cursor, Cursor)]
    ways = list_ways(cursors)
    outputs = [models[name].run(given, lines=1) for name, given in ways.values()]
    exact, similar = (
        compare(name, [*ways], [METRICS[metric].items(found, trial.references) for found in outputs], higher=True)
        for metric, name in (("exact", "exact match, %"), ("edit_similarity", "edit similarity, %"))
    )
    good = {way: find_compiled(cursors, found) for way, found in zip(ways, outputs, strict=True)}
    compiled = {way: {"files that compile, %": round(100 * len(good[way]) / len(cursors), 1)} for way in ways}
    new = [i for i in good["fim"] if outputs[1][i].strip() not in ("", trial.references[i].strip())]
    best = max(new, key=lambda i: count_words(outputs[1][i]), default=None)
    return {
        "lines": len(trial.references),
        "rest of a line": {way: exact[way] | similar[way] | compiled[way] for way in ways},
        "a completed line that compiles": "" if best is None else show_line(cursors[best], outputs[1][best]),
    }


def count_words(text: str) -> int:
    """How many different words there are: of several examples, the one that repeats itself least is shown."""
    return len({*re.findall(r"\w+", text)})


def find_compiled(cursors: Sequence[Cursor], outputs: Sequence[str]) -> list[int]:
    """Which files compile with what was written at their cursors."""
    both = enumerate(zip(cursors, outputs, strict=True))
    return [i for i, (cursor, text) in both if does_compile(cursor.before + text + (cursor.after or ""))]


def show_line(cursor: Cursor, output: str) -> str:
    """The two lines before the cursor and its own, and what was written, between arrows."""
    return "\n".join(cursor.before.split("\n")[-3:]) + f"»{output}«"


def score_middles(models: dict[str, regard.Model], texts: list[str], count: int) -> dict[str, Any]:
    """Bits per byte of random middles: what a model gains that reads both sides."""
    encode = models["fim"].tokenizer.encode
    some = [(at, text) for at, text in draw_middles(texts, 2 * count) if len(encode(text)) <= LONGEST][:count]
    ways, middles = list_ways([cursor for cursor, _ in some]), [text for _, text in some]
    sizes = np.array([len(text.encode()) for text in middles])
    items = []
    for name, given in ways.values():
        nats = -np.array(models[name].score(given, middles))  # type: ignore[arg-type]
        items.append(count_items(np.stack([nats / math.log(2), sizes], 1), ratio))
    return {"middles": len(middles), "random middles": compare("bits per byte", [*ways], items, higher=False)}


def write_bodies(models: dict[str, regard.Model], texts: list[str], count: int) -> dict[str, Any]:
    """How many files still compile with the body of a function written by the model, and one that does."""
    asked = draw_bodies(texts, count)
    cursors = [cursor for cursor, _, _ in asked]
    found = models["fim"].run(cursors, max_extra=64)
    good = [i for i in find_compiled(cursors, found) if found[i].strip()]
    best = max(good, key=lambda i: count_words(found[i]), default=None)
    return {"bodies": len(asked), "files that compile with the written body, %": round(100 * len(good) / max(len(asked), 1), 1),
            "a completion that compiles": "" if best is None else asked[best][1] + found[best]}  # fmt: skip


def score_files(models: dict[str, regard.Model], files: Sequence[SourceFile]) -> dict[str, Any]:
    """Accuracy per token of Python and bits per byte, from left to right."""
    words = {"token_accuracy": "token accuracy, %", "bits_per_byte": "bits per byte"}
    found = regard.evaluate([*models.values()], [str(file.path) for file in files], metrics=[*words], device="cpu")
    rows: dict[str, dict[str, Any]] = {}
    for name, row in zip(models, found.models, strict=True):
        rows[name] = {}
        for metric, word in words.items():
            score = row.scores[metric]
            rows[name] |= {
                word: round(score.score, 3),
                f"{word}, interval": [round(score.low, 3), round(score.high, 3)],
            }
    return {"whole files, left to right": rows}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seed", type=int, default=1)
    said = parse(arguments, out="runs/code-bench")
    out = said.out / f"seed-{said.seed}"
    parts = split_library(list_library())
    if said.smoke:
        parts = {"train": parts["train"][:12], "valid": parts["valid"][:2], "test": parts["test"][:2]}
    models, runs = {}, {}
    for name in TWINS:
        models[name], runs[name] = train(name, parts, out, said.seed, smoke=said.smoke)
    texts = [read_text(file.path) for file in parts["test"]]
    few = 10 if said.smoke else None
    figures = {
        "files": {part: len(some) for part, some in parts.items()},
        "test characters": sum(map(len, texts)),
        "training": runs,
        **score_files(models, parts["test"]),
        **score_lines(models, texts, few or LINES),
        **score_middles(models, texts, few or MIDDLES),
        **write_bodies(models, texts, few or BODIES),
    }
    print(json.dumps(figures, indent=2, ensure_ascii=False))
    title = (
        "Completing the standard library of Python: fill-in-the-middle beside its left-to-right twin, held-out files"
    )
    facts = {"seed": said.seed, "intervals": "score and 95 % bootstrap interval over lines, middles or windows"}
    print(write("code", title=title, figures=figures, **facts))


if __name__ == "__main__":
    main()
