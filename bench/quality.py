"""Is quality unharmed? The same recipe with every fast path and with the plain twin of each, three seeds.

`python -m bench.quality` trains Multi30k for a few passes six times; runs that are finished are not made again. With
`--precision bfloat16` the fast paths train in bfloat16 on any processor; the plain twins always train in float32.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import torch.nn.functional as F
from torch import Tensor

import regard
from bench.entry import parse
from bench.results import write
from bench.target import changes
from regard.nn.layers.loss import plain_smoothed_loss
from regard.training.run.log import read_log
from regard.training.step.data_parallel import ThreadGroup

RECIPE = str(Path(__file__).parent / "multi30k-fast.yaml")
SEEDS, EPOCHS = (1, 2, 3), 2
SHORT = {"train.epochs": EPOCHS, "train.validate_every": 10_000, "train.schedule.warmup": 50}


@contextmanager
def plainly() -> Iterator[None]:
    """No fast path: torch's dropout, all logits at once, every thread in every operator."""

    def dropout(x: Tensor, p: float, seed: int | None = None) -> Tensor:
        return F.dropout(x, p)

    with (
        patch("regard.nn.layers.dropout.dropout", dropout),
        patch("regard.nn.blocks.head.smoothed_loss", plain_smoothed_loss),
        patch.object(ThreadGroup, "choose", lambda threads, tokens, device: ThreadGroup(1, threads)),
    ):
        yield


@contextmanager
def quickly() -> Iterator[None]:
    """As it comes."""
    yield


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m bench.quality", description=__doc__)
    arguments.add_argument("--precision", choices=("float32", "bfloat16"), default="float32", help="of the fast paths")
    asked = parse(arguments, out="runs/quality", seeds=SEEDS)
    name_of_result = "quality" if asked.precision == "float32" else f"quality-{asked.precision}"
    settings = SHORT | changes()
    found: dict[str, list[float]] = {}
    minutes: dict[str, float] = {}
    for seed in asked.seed:
        for name, way in (("fast", quickly), ("plain", plainly)):
            precision = asked.precision if name == "fast" else "float32"
            out = asked.out / f"{name}-{precision}-{seed}"
            with way():
                regard.train(RECIPE, out=out, set={**settings, "train.precision": precision, "train.seed": seed})
            done = next(e for e in reversed(read_log(out / "log.jsonl")) if e["event"] == "done")
            found.setdefault(name, []).append(round(done["scores"]["bleu_tokens"], 2))
            minutes[name] = minutes.get(name, 0.0) + done["seconds"] / 60
            print(name, seed, found[name][-1], file=sys.stderr)
    difference = statistics.mean(found["fast"]) - statistics.mean(found["plain"])
    spread = max(statistics.stdev(each) for each in found.values()) if len(asked.seed) > 1 else None
    figures = {
        **{f"BLEU of each seed, {name}": values for name, values in found.items()},
        **{f"minutes of all seeds, {name}": round(value, 1) for name, value in minutes.items()},
        "difference of the means": round(difference, 2),
        "standard deviation over seeds": None if spread is None else round(spread, 2),
    }
    print(figures)
    title = f"Fast paths ({asked.precision}) against their plain twins, Multi30k, {EPOCHS} passes, validation BLEU"
    print(write(name_of_result, title=title, figures=figures))


if __name__ == "__main__":
    main()
