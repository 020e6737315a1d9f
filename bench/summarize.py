"""Debian synopses: plain, pre-trained, copying and both, against lead-1. `python -m bench.summarize`.

Each description of a Debian package becomes its one-line synopsis. The same small model is trained from nothing or after
denoising the training descriptions (BART), with a plain head or one that copies (pointer-generator), with three seeds. The
dropout is that of two with which the plain model is better on validation data, by seed 1; the checkpoint of each run is chosen
there, too, and the test is read once per run, at the end. Differences come with a paired bootstrap over test items, for which
the scores of an item are averaged over seeds. Run again after a stop, it continues; `--table` only prints what there is.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

import regard
from bench.entry import find_data, parse
from bench.results import write
from regard.data.documents import split_sentences
from regard.metrics import METRICS
from regard.metrics.bootstrap import bootstrap
from regard.metrics.items import count_items, ratio
from regard.report.table import Table
from regard.training.run.log import read_log

VARIANTS = {"plain": (False, False), "copying": (False, True), "pre-trained": (True, False), "both": (True, True)}
"""Whether a variant is pre-trained, and whether its head copies."""
SEEDS = (1, 2, 3)
SIDES = ("encoder", "decoder")
DROPOUTS = (0.1, 0.3)
SCORES = ("rouge_l", "rouge1", "rouge2")
VALIDATION = 500
"""Validation texts that choose the checkpoint."""
EPOCHS, PRETRAINING_EPOCHS = 4, 3
LENGTH = 100
"""Tokens of a description that are read: most have fewer."""
VOCABULARY = 6000
MODEL: dict[str, Any] = {
    "family": "transformer",
    "width": 128,
    "depth": 2,
    "heads": 4,
    "hidden": 512,
    "norm": "pre",
}
TRAIN: dict[str, Any] = {
    "batch_tokens": 4096,
    "optimizer": {"kind": "muon", "weight_decay": 0.1},
    "schedule": {"kind": "cosine", "lr": 3e-3, "warmup": 100},
    "threads": 1,
    "log_every": 50,
}
TINY_TRAIN = {"batch_tokens": 256, "schedule": {"kind": "constant", "lr": 1e-3}, "steps": 2}
TINY_MODEL = {"width": 16, "depth": 1, "heads": 2, "hidden": 16}


def read(part: str, smoke: bool) -> list[tuple[str, str]]:
    """Descriptions and synopses."""
    lines = (
        gzip.decompress(find_data("debian_descriptions", f"{part}.tsv.gz").read_bytes()).decode("utf-8").splitlines()
    )
    rows = [line.split("\t") for line in lines[: 30 if smoke else None]]
    return [(text, synopsis) for _, text, synopsis in rows]


def prepare(folder: Path, smoke: bool) -> dict[str, str]:
    """Tables of training and validation pairs, and a text with one training description on each line."""
    out = {name: str(folder / name) for name in ("train.tsv", "valid.tsv", "train.txt", "valid.txt")}
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "valid"):
        rows = read(part, smoke)[: VALIDATION if part == "valid" else None]
        Path(out[f"{part}.tsv"]).write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
        Path(out[f"{part}.txt"]).write_text("".join(f"{a}\n" for a, _ in rows), encoding="utf-8")
    return out


def recipe(files: dict[str, str], seed: int, smoke: bool) -> dict[str, Any]:
    return {
        "task": "summarize",
        "data": {
            "train": [{"paths": [files["train.tsv"]], "columns": [1, 2], "header": False}],
            "valid": [{"paths": [files["valid.tsv"]], "columns": [1, 2], "header": False}],
            "tokenizer": {"kind": "bpe", "vocab": 300 if smoke else VOCABULARY},
            "max_length": LENGTH,
        },
        "model": {**MODEL, **(TINY_MODEL if smoke else {})},
        "train": {**TRAIN, **(TINY_TRAIN if smoke else {}), "seed": seed, "epochs": EPOCHS, "label_smoothing": 0.1},
        "decode": {"beam": 4, "length_penalty": "power", "alpha": 1.0, "max_extra": 0, "max_length": 4 if smoke else 40},
    }  # fmt: skip


def pretraining(files: dict[str, str], seed: int, smoke: bool) -> dict[str, Any]:
    return {
        "task": "denoise",
        "data": {
            "train": [files["train.txt"]], "valid": [files["valid.txt"]], "documents": "line", "max_length": LENGTH,
            "tokenizer": {"kind": "bpe", "vocab": 300 if smoke else VOCABULARY},
        },
        "model": {**MODEL, **(TINY_MODEL if smoke else {}), "dropout": 0.1},
        "train": {**TRAIN, **(TINY_TRAIN if smoke else {}), "seed": seed, "epochs": PRETRAINING_EPOCHS, "label_smoothing": 0.0},
    }  # fmt: skip


def train(out: Path, variant: str, seed: int, dropout: float, *, smoke: bool) -> Path:
    """Train one variant, or go on; its run folder."""
    files, (pretrained, copies) = prepare(out / "data", smoke), VARIANTS[variant]
    kept, start = out / f"{variant}-{dropout}-{seed}", None
    if pretrained:
        start = out / f"pre-training-{seed}"
        if not is_done(start):
            regard.train(pretraining(files, seed, smoke), out=start)
    if not is_done(kept):
        changes = dict.fromkeys(("model.embed.dropout", *(f"model.{side}.wiring.dropout" for side in SIDES)), dropout)
        head = {"model.head.kind": "pointer" if copies else "vocab"}
        regard.train(recipe(files, seed, smoke), out=kept, start=start, set={**changes, **head})
    return kept


def is_done(run: Path) -> bool:
    return (run / "log.jsonl").exists() and any(event["event"] == "done" for event in read_log(run / "log.jsonl"))


def validation_score(run: Path) -> float:
    """The best ROUGE-L on validation texts."""
    found = [event["scores"] for event in read_log(run / "log.jsonl") if event["event"] == "valid"]
    return max(scores["rouge_l"] for scores in found if "rouge_l" in scores)


def choose(out: Path, *, smoke: bool) -> tuple[float, dict[float, float]]:
    """The dropout with which the plain model is best on validation data, by seed 1; and all that was tried."""
    tried = {d: validation_score(train(out, "plain", 1, d, smoke=smoke)) for d in (DROPOUTS[:1] if smoke else DROPOUTS)}
    return max(tried, key=lambda dropout: tried[dropout]), tried


def measure(out: Path, variant: str, seed: int, *, smoke: bool) -> None:
    """Train one variant, score its best checkpoint on the test once, and keep the outputs."""
    result = out / f"{variant}-{seed}.json"
    if result.exists():
        return
    dropout, tried = choose(out, smoke=smoke)
    run = train(out, variant, seed, dropout, smoke=smoke)
    log, rows = read_log(run / "log.jsonl"), read("test", smoke)
    start, done = (next(e for e in reversed(log) if e["event"] == kind) for kind in ("start", "done"))
    outputs = regard.load(run / "best").run([text for text, _ in rows])
    row = {
        "variant": variant, "seed": seed, "dropout": dropout, "tried on validation": tried,
        "validation": validation_score(run), "minutes": round(done["seconds"] / 60, 1), "parameters": start["parameters"],
        "outputs": outputs,
    }  # fmt: skip
    result.write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")


def score_items(outputs: list[str], references: list[str], metric: str) -> list[float]:
    """The score of each item, in percent."""
    items = METRICS[metric].items(outputs, references)
    return [items.score(np.array([i])) for i in range(len(items))]


def tabulate(out: Path, *, smoke: bool) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """What has been measured so far, and a few summaries of the first seed."""
    rows = read("test", smoke)
    texts, references = [text for text, _ in rows], [synopsis for _, synopsis in rows]
    lead = [next(iter(split_sentences(text, "line")), "") for text in texts]
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in VARIANTS}
    for path in sorted(out.glob("*-[0-9].json")):
        row = json.loads(path.read_text(encoding="utf-8"))
        found[row["variant"]].append(row)
    outputs = {"lead-1": [lead]} | {name: [row["outputs"] for row in each] for name, each in found.items() if each}
    each_item = {
        metric: {
            name: [mean(scores) for scores in zip(*(score_items(o, references, metric) for o in seeds), strict=True)]
            for name, seeds in outputs.items()
        }
        for metric in SCORES
    }
    figures: dict[str, Any] = {}
    for name in outputs:
        figures[name] = {metric: round(mean(each_item[metric][name]), 2) for metric in SCORES}
        if name == "lead-1":
            continue
        runs = found[name]
        figures[name] |= {
            "seeds": len(runs), "each seed": [round(mean(score_items(r["outputs"], references, "rouge_l")), 2) for r in runs],
            "dropout": runs[0]["dropout"], "minutes": round(mean(row["minutes"] for row in runs), 1),
            "parameters": runs[0]["parameters"],
        }  # fmt: skip
        for other in ("lead-1", "plain"):
            if other in outputs and other != name:
                sides = [count_items([(s, 1) for s in each_item["rouge_l"][side]], ratio) for side in (other, name)]
                gap = bootstrap(sides, samples=2000).differences[0, 1]
                figures[name][f"above {other}"] = round(gap.difference, 2)
                figures[name][f"above {other}, interval"] = [round(gap.low, 2), round(gap.high, 2)]
    examples = [
        {"text": texts[i][:300], "synopsis": references[i], **{n: o[0][i] for n, o in outputs.items()}}
        for i in range(0, len(texts), max(len(texts) // 4, 1))
    ]
    return figures, examples[:4]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--table", action="store_true", help="only print what has been measured so far")
    said = parse(arguments, out="runs/summarize-bench", seeds=SEEDS)
    out = said.out
    for seed in () if said.table else said.seed:
        for variant in VARIANTS:
            measure(out, variant, seed, smoke=said.smoke)
    figures, examples = tabulate(out, smoke=said.smoke)
    head = (*SCORES, "seeds", "dropout", "minutes", "above lead-1", "above plain", "above plain, interval")
    rows = tuple((name, *(str(row.get(k, "")) for k in head)) for name, row in figures.items())
    print(Table(("model", *head), rows).markdown())
    title = "Debian synopses: ROUGE of summaries by small models, three seeds, against the first sentence"
    print(
        write(
            "summarize",
            title=title,
            figures=figures,
            examples=examples,
        )
    )


if __name__ == "__main__":
    main()
