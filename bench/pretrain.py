"""Does pre-training pay? A BERT-shaped encoder of residues tells secondary structure from a few labelled chains:

    tuned     first taught to fill in masked residues of 10,000 chains, then the labels
    scratch   the same model, the same labels for as many steps, and nothing before

`python -m bench.pretrain` reads the folder protein_ss. Three seeds, each with chains and a model of its own; both
learn from 1,000 labelled chains, and again from 200, keep the checkpoint that is best on a tenth of these, and are scored on
the validation file, which is new to both. The same command again goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import regard
from bench.entry import Mode, cut, find_data, parse
from bench.results import write
from regard.data.labels import read_tagged
from regard.data.pairs import Pairs
from regard.metrics.class_metrics import accuracy_items
from regard.report.table import Table
from regard.studies.student_t import t_quantile

NEAR = 8
"""Residues to either side that each attends to: with all in view, a model so small learns little more than frequencies here."""
LOOK = {"kind": "local", "reach": NEAR, "position": {"kind": "relative", "reach": NEAR}}
MODEL: dict[str, Any] = dict(family="bert", width=128, depth=4, heads=4, hidden=256, dropout=0.1, init="xavier")
MODEL |= {"encoder": {"block": {"mix": LOOK}}}
LONGEST = 128
LABELLED = {1000: 8, 200: 24}
"""How many chains have labels, and the passes over them."""
THREE = dict(zip("HGIEBTSL", "HHHEECCC", strict=True))
"""Eight states as three: helix, strand, coil."""
SCORES = {"Q8": accuracy_items(list), "Q3": accuracy_items(lambda states: [THREE[s] for s in states])}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("data", type=Path, nargs="?", help="by default ../shared/data/protein_ss")
    arguments.add_argument("--sequences", type=int, default=10_000, help="to pre-train on")
    arguments.add_argument("--passes", type=int, default=2, help="over the sequences in pre-training")
    said = parse(arguments, out="runs/pretrain", seeds=(1, 2, 3))
    usual = said.all_seeds and all(
        getattr(said, name) == arguments.get_default(name) for name in ("sequences", "passes")
    )
    files = [(said.data or find_data("protein_ss")) / f"casp12_{part}.tsv.gz" for part in ("training30", "validation")]
    if said.smoke:
        said.sequences, said.passes, files = 30, 1, [cut(files[0], 60), cut(files[1], 4)]
    everything, held = (read_tagged(str(path), "letters", columns=(2, 3)) for path in files)
    outputs: dict[int, dict[str, list[list[str]]]] = {
        chains // (50 if Mode.smoke else 1): {"scratch": [], "tuned": []} for chains in LABELLED
    }
    for seed in said.seed:
        for (chains, name), model in trained(said, everything, seed).items():
            outputs[chains][name].append(model.run(held.source))
    figures = {f"{chains} labelled chains": judged(each, held.target) for chains, each in outputs.items()}
    print(Table(("labels", "model", *SCORES), tuple(rows(figures))).markdown())
    if usual:
        path = write(
            "pretrain-protein", title="Pre-training then fine-tuning against from scratch: secondary structure of proteins",
            figures=figures, seeds=len(said.seed),
        )  # fmt: skip
        print(path, file=sys.stderr)


def rows(figures: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Both models and the gain, with its interval over seeds and over chains."""
    for labels, found in figures.items():
        for name in ("scratch", "tuned"):
            yield labels, name, *(found[score][name] for score in SCORES)
        gains = [found[score]["gain"] for score in SCORES]
        yield labels, "gain", *(f"{g['mean']:+.2f}, seeds {g['seeds']}, chains {g['chains']}" for g in gains)


def trained(said: argparse.Namespace, everything: Pairs, seed: int) -> dict[tuple[int, str], regard.Model]:
    """Both models of a seed, for each number of labelled chains."""
    folder = said.out / f"seed-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    order, texts = chosen(everything.source, seed), folder / "sequences.txt"
    _put(texts, [everything.source[i] for i in order[: said.sequences]])
    first = regard.train(learning("mlm", seed, epochs=said.passes, peak=2e-3), [str(texts)], out=folder / "mlm")
    found: dict[tuple[int, str], regard.Model] = {}
    for chains, epochs in LABELLED.items():
        chains, epochs = (chains // 50, 1) if Mode.smoke else (chains, epochs)
        labels = folder / f"labelled-{chains}.tsv"
        _put(labels, [f"{everything.source[i]}\t{everything.target[i]}" for i in order[:chains]])
        recipe = learning("tag", seed, epochs=epochs, peak=2e-3)
        for name, start in (("scratch", None), ("tuned", first.path)):
            out = folder / f"{name}-{chains}"
            found[chains, name] = regard.train(recipe, [str(labels)], out=out, start=start)
    return found


def learning(task: str, seed: int, *, epochs: int, peak: float) -> dict[str, Any]:
    """The recipe of a run."""
    data: dict[str, Any] = {"tokenizer": "chars"}
    if task == "mlm":
        data |= {"documents": "line", "context": LONGEST, "next_sentence": False, "hold_out": 0.01}
    else:
        data |= {"unit": "letters", "max_length": LONGEST, "hold_out": 0.1}
    train = {
        "seed": seed,
        "epochs": epochs,
        "batch_tokens": 512 if Mode.smoke else 4096,
        "optimizer": {"kind": "muon", "weight_decay": 0.05},
        "schedule": {"kind": "wsd", "lr": peak, "warmup": 1 if Mode.smoke else 40, "decay": 0.5},
        "label_smoothing": 0.0,
    }
    return {"task": task, "data": data, "model": MODEL, "train": train}


def chosen(texts: Sequence[str], seed: int) -> list[int]:
    """All texts in an order of this seed, the same on every machine."""
    key = str(seed).encode()
    return sorted(range(len(texts)), key=lambda i: hashlib.blake2b(texts[i].encode(), digest_size=8, key=key).digest())


def judged(outputs: dict[str, list[list[str]]], truth: Sequence[str]) -> dict[str, Any]:
    """The scores of both, seed by seed, and the gain with its intervals: over seeds (Student) and over chains (bootstrap)."""
    draw, count = np.random.Generator(np.random.PCG64(1)), len(truth)
    figures: dict[str, Any] = {"chains": count}
    for score, of in SCORES.items():
        each = {name: [of(one, truth).score() for one in rows] for name, rows in outputs.items()}
        gains = [b - a for a, b in zip(each["scratch"], each["tuned"], strict=True)]
        mean = statistics.fmean(gains)
        far = (
            t_quantile(0.975, len(gains) - 1) * statistics.stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else None
        )
        hits = [
            np.asarray(
                [[of([o], [t]).score() * len(t) for o, t in zip(one, truth, strict=True)] for one in outputs[name]]
            ).mean(0)
            for name in ("scratch", "tuned")
        ]
        lengths, picks = np.asarray([len(t) for t in truth]), draw.integers(0, count, (2000, count))
        low, high = np.percentile(((hits[1] - hits[0])[picks].sum(1) / lengths[picks].sum(1)), [2.5, 97.5])
        figures[score] = {name: round(statistics.fmean(rows), 2) for name, rows in each.items()}
        figures[score]["each"] = {name: [round(v, 2) for v in rows] for name, rows in each.items()}
        figures[score]["gain"] = {
            "mean": round(mean, 2),
            "seeds": None if far is None else [round(mean - far, 2), round(mean + far, 2)],
            "chains": [round(float(low), 2), round(float(high), 2)],
        }
    return figures


def _put(path: Path, lines: Sequence[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


if __name__ == "__main__":
    main()
