"""Words of CMUdict to phones, without stress: `python -m bench.pronounce`, about half an hour on two cores.

The recipe `pronounce` is trained, and judged by words that were kept apart: right is what equals any listed pronunciation. The
published figure is that of g2p-seq2seq's Transformer on the dictionary of today. Run again after a stop, it goes on.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import regard
from bench.entry import cut, find_data, parse
from bench.results import write
from regard.data.pronunciation import OR
from regard.metrics import METRICS
from regard.report.table import Table
from regard.training.run.log import read_log

PUBLISHED, TARGET = 30.2, 27.0
TINY = {
    "train.steps": 6, "train.schedule.warmup": 1, "train.validate_every": 6, "train.batch_tokens": 1024, "model.width": 32,
    "model.hidden": 64, "model.depth": 1, "data.valid": 0.02,
}  # fmt: skip
BEAMS = (1, 5)


def judge(model: regard.Model, dictionary: str, most: int | None) -> dict[str, Any]:
    """Errors on the words kept for a test, by the width of the beam, and some words that went wrong."""
    task = model.task
    (trial,) = task.eval_sets(task.read_test(task.settings, [dictionary]))
    inputs, references = trial.inputs[:most], trial.references[:most]
    found: dict[str, Any] = {"test words": len(inputs)}
    for beam in BEAMS:
        began = time.monotonic()
        outputs = model.run(inputs, beam=beam)
        for name in task.metrics:
            found[f"{name}, beam {beam}"] = round(METRICS[name].compute(outputs, references), 2)
        found[f"words a second, beam {beam}"] = round(len(inputs) / (time.monotonic() - began), 1)
    rows = zip(inputs, outputs, references, strict=True)
    found["some errors"] = [f"{word}: {out} ({ways})" for word, out, ways in rows if out not in ways.split(OR)][:12]
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("dictionary", nargs="?", help="by default CMUdict")
    arguments.add_argument("--seed", type=int, default=1)
    said = parse(arguments, out="runs/pronounce")
    dictionary = said.dictionary or str(find_data("cmudict", "cmudict.dict.gz"))
    if said.smoke:
        dictionary = str(cut(Path(dictionary), 1000))
    out = said.out / f"seed-{said.seed}"
    changes = {"data.train": [dictionary], "train.seed": said.seed, **(TINY if said.smoke else {})}
    model = regard.train("pronounce", out=out, set=changes)
    log = read_log(out / "log.jsonl")
    start, done = (next(e for e in reversed(log) if e["event"] == kind) for kind in ("start", "done"))
    figures = judge(model, dictionary, 40 if said.smoke else None)
    figures |= {"minutes": round(done["seconds"] / 60, 1), "parameters": start["parameters"], "steps": done["step"]}
    figures |= {"word error, published (g2p-seq2seq's Transformer)": PUBLISHED, "word error, wanted": TARGET}
    print(Table(("figure", "value"), tuple((k, v) for k, v in figures.items() if k != "some errors")).markdown())
    print("\n".join(figures["some errors"]))
    title = "Letters to phones on CMUdict without stress: words that were kept apart, any listed pronunciation right"
    print(write("pronounce", title=title, figures=figures, seed=said.seed, threads=start["threads"]))


if __name__ == "__main__":
    main()
