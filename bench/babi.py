"""The table of bAbI for a memory network (Sukhbaatar et al. 2015), beside the published one. `python -m bench.babi FOLDER`.

FOLDER has the files qa1_…_train.txt and so on. Each task is learned ten times (all together: three times); the run with the
lowest training error counts, with the median beside it. Finished runs are kept in a file: run again after a stop, it goes on.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import regard
from bench.results import parse, write
from regard.report.table import Table

SINGLE = [0.1, 8.2, 41.8, 4.4, 13.7, 7.9, 20.3, 11.7, 13.6, 9.7, 0.7, 0.0, 0.3, 0.9, 0.0, 0.4, 51.0, 10.5, 81.4, 0.0]
JOINT = [0.0, 13.1, 23.4, 5.9, 12.9, 3.7, 22.9, 9.1, 2.7, 7.2, 0.8, 0.1, 0.1, 4.2, 0.0, 1.2, 43.6, 10.5, 86.7, 0.0]
"""Per cent wrong, 3 hops, position encoding, linear start, random noise (authors' code)."""


def error(model: regard.Model, path: Path) -> float:
    """Per cent of a file's questions that are answered wrongly."""
    stories = model.task.read_test(model.task.settings, [str(path)])  # type: ignore[attr-defined]
    outputs = model.run(stories)
    return 100.0 * sum(out != story.answer for out, story in zip(outputs, stories, strict=True)) / len(stories)


def learn(files: list[Path], tests: list[Path], out: Path, seed: int, joint: bool, tiny: bool) -> dict[str, Any]:
    """Train one model; per cent wrong in training and on each test."""
    recipe: dict[str, Any] = {"train.seed": seed, "train.threads": 1}
    if joint:  # 18,000 questions: 30 passes of linear start, then 60, the rate halved every 15
        epoch = 900 * len(files) // 32 + 1
        recipe |= {"model.width": 50, "train.epochs": 90, "model.linear_start": 30 * epoch}
        recipe |= {"train.schedule.first_steps": 30 * epoch, "train.schedule.every": 15 * epoch}
    if tiny:
        recipe |= {"train.steps": 4}
    model = regard.train("babi", [str(path) for path in files], out=out, set=recipe)
    train = statistics.mean(error(model, path) for path in files)
    return {"train": train, "test": [error(model, path) for path in tests]}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--out", type=Path, default=Path("runs/babi"))
    arguments.add_argument("--joint", action="store_true", help="one model for all tasks")
    arguments.add_argument("--task", type=int, action="append", help="a task, 1 to 20; may be repeated")
    arguments.add_argument("--runs", type=int, help="ten; three with --joint")
    arguments.add_argument("--tiny", action="store_true", help="does it run at all? Nothing is kept")
    said = parse(arguments)
    out = Path(tempfile.mkdtemp()) if said.tiny else said.out
    tasks, name = said.task or list(range(1, 21)), "joint" if said.joint else "single"
    files = {n: [next(said.folder.glob(f"qa{n}_*_{part}.txt")) for part in ("train", "test")] for n in tasks}
    groups = [tasks] if said.joint else [[n] for n in tasks]
    out.mkdir(parents=True, exist_ok=True)
    store = out / f"{name}.json"
    done: dict[str, Any] = json.loads(store.read_text()) if store.exists() else {}
    errors: dict[int, tuple[float, float]] = {}
    for group in groups:
        runs = []
        for seed in range(1, 1 + (said.runs or (1 if said.tiny else 3 if said.joint else 10))):
            key = f"{'-'.join(map(str, group))}/{seed}"
            if key not in done:
                train, test = ([files[n][i] for n in group] for i in (0, 1))
                done[key] = learn(train, test, out / name / key.replace("/", "-"), seed, said.joint, said.tiny)
                store.write_text(json.dumps(done))
            runs.append(done[key])
        best = min(runs, key=lambda run: run["train"])
        for i, n in enumerate(group):
            errors[n] = best["test"][i], statistics.median(run["test"][i] for run in runs)
    published = JOINT if said.joint else SINGLE
    rows = [(str(n), published[n - 1], round(best, 1), round(mid, 1)) for n, (best, mid) in errors.items()]
    rows.append(("mean", *(round(statistics.mean(row[i] for row in rows), 1) for i in (1, 2, 3))))  # type: ignore[misc]
    print(Table(("task", "published", "ours", "median"), tuple(rows)).markdown())
    if not said.tiny and not said.task:
        figures = {row[0]: dict(zip(("published", "ours", "median"), row[1:], strict=True)) for row in rows}
        print(
            write(
                f"babi-{name}", title="bAbI 1k: per cent wrong", command=f"python -m bench.babi {name}", figures=figures
            )
        )


if __name__ == "__main__":
    main()
