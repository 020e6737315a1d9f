"""Multi30k En→De on the exact input of the published 41.02 BLEU (test 2016, published scoring): how good, after how long.

`python -m bench.target` trains our fast recipe (bench/multi30k-fast.yaml) with three seeds, `python -m bench.target published`
the published one; seeds that are finished are not trained again, `--seed 1 2` takes only these. Beside the fast recipe stands
how long the published one takes by the speeds of `python -m bench.train tiny`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import regard
from bench import corpus
from bench.entry import ROOT, Mode, cut, find_data, make_scratch, parse
from bench.results import RECORDED, write
from regard.metrics import METRICS
from regard.training.run.log import read_log

RUNS = {"fast": ROOT / "runs" / "target", "published": ROOT / "runs" / "published"}
RESULTS = {"fast": "time-to-quality", "published": "multi30k-published"}
TITLES = {
    "fast": "Multi30k En→De, exact BPE input: minutes of training and BLEU (published scoring)",
    "published": "Multi30k En→De, Transformer-Tiny by the published recipe (41.02 BLEU) on its exact input, published scoring",
}
GOAL, SEEDS = 41.0, (1, 2, 3)
COUNTS = ("steps", "threads")
"""Of which no mean is told."""
BATCHES = 8000 * 2
"""Of 4096 tokens, that the published recipe takes at most."""


SMOKE_LINES = 20
SMOKE = {
    "train.epochs": None, "train.steps": 2, "train.validate_every": 2, "train.batch_tokens": 128, "train.schedule.warmup": 1,
    "model.width": 32, "model.depth": 1, "model.heads": 2, "model.hidden": 64, "decode.max_length": 4,
}  # fmt: skip


def lines(name: str) -> list[str]:
    found = gzip.decompress(find_data("multi30k", "bpe_en_de", name).read_bytes()).decode().splitlines()
    return found[: SMOKE_LINES if Mode.smoke else None]


def train_some(out: Path) -> Path:
    """The model of the fast recipe after a dozen epochs, a third of its time, unless it is there."""
    if not (out / "final").exists():
        recipe = Path(__file__).parent / "multi30k-fast.yaml"
        regard.train(str(recipe), out=out, set={"train.seed": 1, "train.epochs": 12} | changes())
    return out / "final"


def changes() -> dict[str, Any]:
    """What a smoke run changes in a recipe on this data; nothing in a real one."""
    folder = find_data("multi30k", "bpe_en_de")
    if not Mode.smoke:
        return {}
    data = {
        f"data.{part}": [{"paths": [str(cut(folder / f"{part}.{side}.gz", SMOKE_LINES)) for side in ("en", "de")]}]
        for part in ("train", "valid")
    }
    return SMOKE | data


def trained(recipe: str, seed: int) -> dict[str, float]:
    """Train with a seed, unless that is done; the scores of what came out, and the minutes."""
    out, score = (make_scratch() if Mode.smoke else RUNS[recipe]) / str(seed), METRICS["bleu_tokens"].score
    assert score is not None
    if (out / "final").exists():
        model = regard.load(out)
    else:
        settings = changes() | {"train.seed": seed}
        model = regard.train(str(Path(__file__).parent / f"multi30k-{recipe}.yaml"), out=out, set=settings)
    done = next(e for e in reversed(read_log(out / "log.jsonl")) if e["event"] == "done")
    parts = {"BLEU on test 2016": "test.2016", "BLEU on validation": "valid"}
    judged = {name: score(model.run(lines(f"{part}.en.gz")), _whole(f"{part}.de.gz")) for name, part in parts.items()}
    facts = json.loads((out / "run.json").read_text(encoding="utf-8"))
    return {**judged, "minutes": done["seconds"] / 60, "steps": done["step"], "threads": facts["threads"]}


def _whole(name: str) -> list[str]:
    """Lines with the pieces of words joined."""
    return [line.replace("@@ ", "") for line in lines(name)]


def published() -> dict[str, object]:
    """Minutes that the published recipe takes at the measured speeds, if it is not stopped early."""
    path = RECORDED / "bench-train-tiny.json"
    if not path.exists():
        return {}
    speeds = json.loads(path.read_text(encoding="utf-8"))["figures"]
    source, target = corpus.corpus()
    batches = corpus.bucketed(source, target, 4096)
    tokens = statistics.mean(sum(len(target[i]) + 1 for i in rows) for rows in batches)
    return {
        f"minutes of the published recipe, {name}": round(BATCHES * tokens / row["best tokens/s"] / 60)
        for name, row in speeds.items()
        if "best tokens/s" in row
    }


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m bench.target", description=__doc__)
    words.add_argument("recipe", choices=list(RUNS), nargs="?", default="fast")
    asked = parse(words, seeds=SEEDS)
    found: dict[str, list[float]] = {}
    for seed in asked.seed:
        for name, value in trained(asked.recipe, seed).items():
            found.setdefault(name, []).append(round(value, 2))
        print(seed, {name: values[-1] for name, values in found.items()}, file=sys.stderr)
    figures: dict[str, object] = {f"{name}, each seed": values for name, values in found.items()}
    figures |= {
        f"{name}, mean": round(statistics.mean(values), 2) for name, values in found.items() if name not in COUNTS
    }
    figures |= {"seeds that reach 41.0": sum(value >= GOAL for value in found["BLEU on test 2016"])}
    figures |= published() if asked.recipe == "fast" else {}
    print(write(RESULTS[asked.recipe], title=TITLES[asked.recipe], figures=figures))


if __name__ == "__main__":
    main()
