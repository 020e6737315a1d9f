"""The table of bAbI for a memory network (Sukhbaatar et al. 2015), beside the published one. `python -m bench.babi`.

Each task is learned by itself, ten times; with `--joint` one model learns all of them, three times. The run with the lowest
training error counts, and the median of all stands beside it. The setting is that of the authors' code: 1,000 questions per
task, 3 hops, position encoding, linear start, random noise, the model after the last step. As in the paper, and not in that
code, places count over the words of a sentence, the rate is 0.01 after the linear start, and noise adds empty sentences.
Finished runs are kept in a file, so that a stopped bench goes on; `--table` prints what there is.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import regard
from bench.entry import find_data, parse
from bench.results import write
from regard.data.stories import read_stories
from regard.decode import Search
from regard.engine.torch_engine import TorchEngine
from regard.report.table import Table
from regard.tasks.babi import Babi

SINGLE = [0.1, 8.2, 41.8, 4.4, 13.7, 7.9, 20.3, 11.7, 13.6, 9.7, 0.7, 0.0, 0.3, 0.9, 0.0, 0.4, 51.0, 10.5, 81.4, 0.0]
JOINT = [0.0, 13.1, 23.4, 5.9, 12.9, 3.7, 22.9, 9.1, 2.7, 7.2, 0.8, 0.1, 0.1, 4.2, 0.0, 1.2, 43.6, 10.5, 86.7, 0.0]
"""Per cent wrong, 3 hops, position encoding, linear start, random noise (authors' code)."""
RUNS = {"single": 10, "joint": 3}
Files = dict[int, tuple[Path, Path]]
"""The training and the test file of each task."""


def unpack(folder: Path, data: Path) -> Files:
    """The files of all tasks."""
    if not folder.exists():
        with tarfile.open(data) as tar:
            tar.extractall(folder, filter="data")
    found = {n: [next(folder.rglob(f"qa{n}_*_{part}.txt")) for part in ("train", "test")] for n in range(1, 21)}
    return {n: (train, test) for n, (train, test) in found.items()}


def error(model: regard.Model, path: Path) -> float:
    """Per cent of a file's questions that are answered wrongly."""
    assert isinstance(model.task, Babi)
    stories = read_stories(path)
    outputs = model.task.run(TorchEngine(model.net), stories, Search())
    return 100.0 * statistics.mean(best.text != story.answer for (best,), story in zip(outputs, stories, strict=True))


def learn(pairs: Sequence[tuple[Path, Path]], out: Path, seed: int, *, smoke: bool) -> dict[str, Any]:
    """Train one model; per cent wrong in training and on each test."""
    recipe: dict[str, Any] = {"train.seed": seed, "train.threads": 1}
    if len(pairs) > 1:  # 30 passes of linear start, then 60, the rate halved every 15
        epoch = 900 * len(pairs) // 32
        recipe |= {"model.width": 50, "train.epochs": 90, "model.linear_start": 30 * epoch}
        recipe |= {"train.schedule.first_steps": 30 * epoch, "train.schedule.every": 15 * epoch}
    if smoke:
        recipe |= {"train.steps": 4}
    began = time.perf_counter()
    regard.train("babi", [str(train) for train, _ in pairs], out=out, set=recipe, quiet=True)
    model = regard.load(out / "final")
    trained, tested = ([error(model, pair[i]) for pair in pairs] for i in (0, 1))
    shutil.rmtree(out)
    return {"train": statistics.mean(trained), "test": tested, "seconds": round(time.perf_counter() - began, 1)}


def tabulate(done: dict[str, Any], groups: list[list[int]], published: list[float]) -> dict[str, dict[str, Any]]:
    """Per cent wrong of each task and of all: of the run with the lowest training error, and the median of all runs."""
    figures: dict[str, dict[str, Any]] = {}
    for group in groups:
        runs = [run for key, run in done.items() if key.partition("/")[0] == name_of(group)]
        best = min(runs, key=lambda run: run["train"], default=None)
        for i, n in enumerate(group):
            row: dict[str, Any] = {"published": published[n - 1], "ours": "not run"}
            if best is not None:
                each = [run["test"][i] for run in runs]
                row |= {
                    "ours": round(best["test"][i], 1),
                    "median of runs": round(statistics.median(each), 1),
                    "runs": len(runs),
                }
            figures[f"task {n}"] = row
    if all("median of runs" in row for row in figures.values()):
        names = ("published", "ours", "median of runs")
        figures["mean"] = {name: round(statistics.mean(row[name] for row in figures.values()), 1) for name in names}
    return figures


def name_of(group: list[int]) -> str:
    return "all" if len(group) > 1 else str(group[0])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data", type=Path, help="the archive of bAbI with 1,000 questions per task")
    arguments.add_argument("--joint", action="store_true", help="one model for all tasks")
    arguments.add_argument("--task", type=int, action="append", choices=range(1, 21), help="a task; may be repeated")
    arguments.add_argument("--runs", type=int, help="ten; three with --joint")
    arguments.add_argument("--table", action="store_true", help="train nothing; print and write what has been measured")
    said = parse(arguments, out="runs/babi")
    name = "joint" if said.joint else "single"
    out = said.out
    tasks = said.task or ([1, 2] if said.smoke else [*range(1, 21)])
    groups = [tasks] if said.joint else [[n] for n in tasks]
    files, store = unpack(out / "data", said.data or find_data("babi", "babi_en_1k.tar.gz")), out / f"{name}.json"
    done: dict[str, Any] = json.loads(store.read_text(encoding="utf-8")) if store.exists() else {}
    for seed in range(1, 1 + (0 if said.table else said.runs or (1 if said.smoke else RUNS[name]))):
        for group in groups:
            key = f"{name_of(group)}/{seed}"
            if key in done:
                continue
            folder = out / f"{name}-{name_of(group)}-{seed}"
            done[key] = learn([files[n] for n in group], folder, seed, smoke=said.smoke)
            store.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
            print(key, done[key], flush=True)
    figures = tabulate(done, groups, JOINT if said.joint else SINGLE)
    head = ("published", "ours", "median of runs", "runs")
    print(
        Table(("per cent wrong", *head), tuple((n, *(r.get(k) for k in head)) for n, r in figures.items())).markdown()
    )
    if not said.task:
        how = "one model for all tasks" if said.joint else "one model for each task"
        title = f"bAbI, 1,000 questions per task, {how}: per cent wrong of a memory network with 3 hops"
        print(write(f"babi-{name}", title=title, figures=figures))


if __name__ == "__main__":
    main()
