"""SASRec and BERT4Rec on Amazon Games, beside the published figures. `python -m bench.recommend`.

The data are those of SASRec (Kang & McAuley 2018) as they come, the model is the published one (width 50, two blocks, one head,
50 items, dropout 0.5), and so is the training: Adam with a constant rate of 0.001 for at most 200 epochs. Batches have up to
1,024 items of histories of like lengths, about as many as 128 users have, and hardly any padding. Training ends after five
validations without a better NDCG@10 against the sampled items. `sasrec-fast` is the recipe `recommend` as it comes: four times
the rate, falling over 60 epochs of batches twice as large. The test is read once for each run, at the end, on all users where
the paper samples 10,000. A stopped bench goes on; `--table` prints what there is.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import mean
from typing import Any

import regard
from bench.entry import Mode, cut, find_data, parse
from bench.results import write
from regard.metrics.items import count_items, ratio
from regard.report.table import Table
from regard.tasks.common.encoded_histories import EncodedHistories
from regard.tasks.common.losses import count_losses
from regard.tasks.recommend import Recommend, RecommendData
from regard.training.run.log import read_log

GAMES = ("amazon_games", "Video.txt.gz")
PUBLISHED = {"sampled_hr@10": 0.741, "sampled_ndcg@10": 0.536}
"""Kang & McAuley 2018, table 3: 100 uniform negatives."""
Counts = Mapping[str, Mapping[str, Any]]
"""For each contender and score the counts of each user."""
SCORES = ("sampled_hr@10", "sampled_ndcg@10", "sampled_mrr", "hr@10", "ndcg@10", "mrr")
PUBLISHED_TRAINING = {
    "train.epochs": 200, "train.batch_tokens": 1024, "train.schedule": {"kind": "constant", "lr": 1e-3},
    "train.validate_every": 1820, "train.patience": 5,
    "data.metrics": ["sampled_ndcg@10", "sampled_hr@10", "sampled_mrr", "ndcg@10", "hr@10", "mrr"],
}  # fmt: skip
"""Validated every ten epochs."""
MODELS: dict[str, dict[str, Any]] = {
    "sasrec": PUBLISHED_TRAINING,
    "sasrec-fast": {},
    "bert4rec": {"model.family": "bert4rec", "train.schedule.lr": 1e-3, "train.schedule.warmup": 200},
}
RUNS = (("sasrec", 1), ("sasrec-fast", 1), ("bert4rec", 1), ("sasrec", 2), ("sasrec", 3))
TINY = {"train.steps": 4, "train.schedule": {"kind": "constant", "lr": 1e-3}, "data.eval_users": 100}


def read_games() -> str:
    """The file of the data; the first lines of it in a smoke run."""
    path = find_data(*GAMES)
    return str(cut(path, 3000) if Mode.smoke else path)


def measure(task: Recommend, count: Callable[[Recommend, EncodedHistories], Counts]) -> dict[str, dict[str, float]]:
    """Scores of each contender on the test users, with negatives drawn alike and, as in BERT4Rec, by popularity."""
    out: dict[str, dict[str, float]] = {}
    raw = Recommend.read_test(task.settings, [read_games()])
    for sampling, prefix, wanted in (("uniform", "", SCORES), ("popularity", "popularity-", SCORES[:3])):
        own = Recommend(dataclasses.replace(task.settings, sampling=sampling), task.items)
        for name, rows in count(own, own.encode(raw)).items():
            scores = {f"{prefix}{kind}": round(count_items(rows[kind], ratio).score(), 4) for kind in wanted}
            out[name] = out.get(name, {}) | scores
    return out


def run(out: Path, name: str, seed: int, *, smoke: bool) -> dict[str, Any]:
    """Train, or go on; then the test of the best checkpoint, once."""
    folder = out / f"{name}-{seed}"
    settings = {
        **MODELS[name],
        "data.windows": False,
        "train.seed": seed,
        "train.threads": 1,
        **(TINY if smoke else {}),
    }
    began = time.process_time()
    regard.train("recommend", data=[read_games()], out=folder, set=settings)
    worked = (time.process_time() - began) / 60
    log = read_log(folder / "log.jsonl")
    start, done = (next(e for e in reversed(log) if e["event"] == kind) for kind in ("start", "done"))
    model = regard.load(folder / "best")
    users = 200 if smoke else None
    task = Recommend(dataclasses.replace(model.task.settings, eval_users=users), model.task.items)
    model.net.eval()
    test = measure(task, lambda own, examples: {name: count_losses(own, model.net, examples).rows})[name]
    valid = max(event["scores"]["sampled_ndcg@10"] for event in log if event["event"] == "valid")
    return {
        "model": name, "seed": seed, **test, "validation sampled_ndcg@10": round(valid, 4), "steps": done["step"],
        "minutes": round(done["seconds"] / 60, 1), "minutes of one core": round(worked, 1), "parameters": start["parameters"],
    }  # fmt: skip


def run_baselines(*, smoke: bool) -> dict[str, dict[str, float]]:
    """Popularity and item-kNN on the same users."""
    settings = RecommendData(train=(read_games(),), eval_users=200 if smoke else None)
    task = Recommend.prepare(settings, Recommend.read(settings, 1))
    return measure(task, lambda own, examples: own.count_baselines(examples))


def tabulate(rows: list[dict[str, Any]], baselines: dict[str, dict[str, float]]) -> dict[str, dict[str, Any]]:
    """What has been measured so far: means over seeds, and each seed."""
    figures: dict[str, dict[str, Any]] = {"published SASRec": dict(PUBLISHED)}
    for name in MODELS:
        found = [row for row in rows if row["model"] == name]
        for row in found:
            figures[f"{name}, seed {row['seed']}"] = {k: v for k, v in row.items() if k not in ("model", "seed")}
        if len(found) > 1:
            numbers = [key for key, value in found[0].items() if isinstance(value, float)]
            figures[f"{name}, mean"] = {key: round(mean(row[key] for row in found), 4) for key in numbers}
    return figures | baselines


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--first", action="store_true", help="seed 1 of SASRec alone")
    arguments.add_argument("--table", action="store_true", help="train nothing; print and write what has been measured")
    said = parse(arguments, out="runs/recommend")
    out = said.out
    out.mkdir(parents=True, exist_ok=True)
    for name, seed in () if said.table else RUNS[: 1 if said.first else None]:
        kept = out / f"{name}-{seed}.json"
        if not kept.exists():
            row = run(out, name, seed, smoke=said.smoke)
            kept.write_text(json.dumps(row) + "\n", encoding="utf-8")
            print(json.dumps(row), flush=True)
    simple = out / "baselines.json"
    if not simple.exists():
        simple.write_text(json.dumps(run_baselines(smoke=said.smoke)) + "\n", encoding="utf-8")
    rows = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob("*-[0-9].json"))]
    figures = tabulate(rows, json.loads(simple.read_text(encoding="utf-8")))
    head = (*SCORES, "minutes", "minutes of one core", "parameters")
    print(Table(("model", *head), tuple((n, *(r.get(k) for k in head)) for n, r in figures.items())).markdown())
    if not said.first:
        title = "Amazon Games: SASRec, three seeds, and BERT4Rec, last item of all users, beside Kang & McAuley 2018"
        print(write("recommend", title=title, figures=figures))


if __name__ == "__main__":
    main()
