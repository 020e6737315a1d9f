"""What a trained model loses with small weights and a shortlist: BLEU on Multi30k, test 2016. `python -m bench.precision`.

The model is trained first, if it is not there: our fast recipe (bench/multi30k-fast.yaml) for a dozen epochs, a third of its
time. It runs on torch and on the native engine in float32, whose tokens should be the same, then in int8 and int4, and in int8
with a shortlist made of the training data. All with beam 5, as the recipe says, and greedily. Speeds are those of the
whole test set at once.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

import regard
from bench.entry import Mode, cut, find_data, parse
from bench.results import write
from bench.target import SMOKE_LINES, lines, train_some
from regard.api import Model
from regard.conversion.convert import convert
from regard.decode import Hypothesis, Request, Search, SpecialTokens
from regard.metrics import METRICS
from regard.report.table import Table

SEARCHES = {"beam 5": {"beam": 5}, "greedy": {"beam": 1}}
CLOSE = 1e-4
"""Difference of scores up to which two outputs are equally good."""


def make_folders(model: Path, home: Path) -> dict[str, Path]:
    """The model in each form."""
    folder = find_data("multi30k", "bpe_en_de")
    pairs = [str(folder / f"train.{side}.gz") for side in ("en", "de")]
    if Mode.smoke:
        pairs = [str(cut(Path(path), SMOKE_LINES)) for path in pairs]
    convert(model, home / "int8", to="int8")
    convert(model, home / "int4", to="int4")
    convert(model, home / "listed", to="int8", shortlist=pairs)
    return {
        "torch float32": model, "native float32": model, "native int8": home / "int8", "native int4": home / "int4",
        "native int8, shortlist": home / "listed",
    }  # fmt: skip


def run(model: Model, texts: Sequence[str], search: Search) -> tuple[list[list[Hypothesis]], float]:
    """The hypotheses of each text, and the seconds that the engine took."""
    task = model.task
    sources = task.encode_inputs(texts, task.Options())  # type: ignore[attr-defined]
    special = SpecialTokens.of(model.tokenizer)
    engine = model.engine
    engine.decode(Request(sources[:8], search, special))
    began = time.perf_counter()
    found = engine.decode(Request(sources, search, special))
    return found, time.perf_counter() - began


def compare(found: Sequence[Sequence[Hypothesis]], wanted: Sequence[Sequence[Hypothesis]]) -> dict[str, object]:
    """How many outputs have the same tokens, and the largest difference of scores among the others."""
    apart = [abs(a[0].score - b[0].score) for a, b in zip(found, wanted, strict=True) if a[0].tokens != b[0].tokens]
    return {
        "outputs with the tokens of torch": len(found) - len(apart),
        "largest difference of their scores": round(max(apart, default=0.0), 7),
        "others whose scores differ more than 1e-4": sum(each > CLOSE for each in apart),
    }


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m bench.precision", description=__doc__)
    arguments.add_argument("--model", type=Path, help="another model folder: to see that it works")
    arguments.add_argument("--lines", type=int, default=1000)
    said = parse(arguments, out="runs/precision")
    model_folder = said.model or train_some(said.out)
    texts, bleu = lines("test.2016.en.gz")[: said.lines], METRICS["bleu_tokens"].score
    references = [line.replace("@@ ", "") for line in lines("test.2016.de.gz")[: said.lines]]
    assert bleu is not None
    figures: dict[str, dict[str, object]] = {}
    with tempfile.TemporaryDirectory() as home:
        folders = make_folders(model_folder, Path(home))
        for how, changes in SEARCHES.items():
            wanted: list[list[Hypothesis]] = []
            for name, folder in folders.items():
                model = regard.load(folder, engine="torch" if name.startswith("torch") else "native")
                found, seconds = run(model, texts, dataclasses.replace(model.search, **changes))  # type: ignore[arg-type]
                outputs = [model.tokenizer.decode(each[0].tokens) for each in found]
                row: dict[str, object] = {"BLEU": round(bleu(outputs, references), 2), "seconds": round(seconds, 2)}
                wanted = wanted or found
                figures[f"{name}, {how}"] = row | (compare(found, wanted) if name == "native float32" else {})
    head = ("model", "BLEU", "seconds")
    print(Table(head, tuple((name, row["BLEU"], row["seconds"]) for name, row in figures.items())).markdown())
    for name, row in figures.items():
        if name.startswith("native float32"):
            print(name, row)
    if said.model is None and said.lines == 1000:
        print(write(
            "int8-bleu", title="Small weights and a shortlist: BLEU on Multi30k, test 2016 (published scoring)",
            figures=figures, threads=torch.get_num_threads(),
        ))  # fmt: skip


if __name__ == "__main__":
    main()
