"""Minutes to the published quality: Multi30k En→De to 41.0 BLEU (test 2016, published scoring), three seeds.

`python -m bench.target` trains bench/multi30k-fast.yaml; runs that are finished are not made again. Beside it stands how long
the published recipe takes (8,000 updates of two batches), from the speeds of `python -m bench.train tiny`.
"""

from __future__ import annotations

import gzip
import json
import statistics
import sys
from pathlib import Path

import regard
from bench import corpus
from bench.results import FOLDER, write
from regard.tasks.metrics import METRICS
from regard.training.log import read_log

RECIPE = str(Path(__file__).parent / "multi30k-fast.yaml")
DATA = Path("../shared/data/multi30k/bpe_en_de")
GOAL, SEEDS = 41.0, (1, 2, 3)
PUBLISHED = 8000 * 2
"""Batches of 4096 tokens that the published recipe takes."""


def lines(name: str) -> list[str]:
    return gzip.decompress((DATA / name).read_bytes()).decode().splitlines()


def main() -> None:
    found: dict[str, list[float]] = {"BLEU on test 2016": [], "BLEU on validation": [], "minutes": []}
    score = METRICS["bleu_tokens"].score
    assert score is not None
    for seed in SEEDS:
        out = Path("runs/target") / str(seed)
        model = regard.train(RECIPE, out=out, set={"train.seed": seed})
        done = next(e for e in reversed(read_log(out / "log.jsonl")) if e["event"] == "done")
        outputs = model.run(lines("test.2016.en.gz"))
        judged = (score(outputs, lines("test.2016.de.gz")), done["scores"]["bleu_tokens"], done["seconds"] / 60)
        for name, value in zip(found, judged, strict=True):
            found[name].append(round(value, 2))
        print(seed, {name: values[-1] for name, values in found.items()}, file=sys.stderr)
    figures: dict[str, object] = {f"{name}, each seed": values for name, values in found.items()}
    figures |= {f"{name}, mean": round(statistics.mean(values), 2) for name, values in found.items()}
    figures |= {"seeds that reach 41.0": sum(value >= GOAL for value in found["BLEU on test 2016"]), **published()}
    title = "Multi30k En→De, exact BPE input: minutes of training and BLEU (published scoring)"
    print(write("time-to-quality", title=title, command="python -m bench.target", figures=figures))


def published() -> dict[str, object]:
    """Minutes that the published recipe takes at the measured speeds."""
    path = FOLDER / "bench-train-tiny.json"
    if not path.exists():
        return {}
    speeds = json.loads(path.read_text(encoding="utf-8"))["figures"]
    source, target = corpus.corpus()
    batches = corpus.bucketed(source, target, 4096)
    tokens = statistics.mean(sum(len(target[i]) + 1 for i in rows) for rows in batches)
    return {
        f"minutes of the published recipe, {name}": round(PUBLISHED * tokens / row["best tokens/s"] / 60)
        for name, row in speeds.items()
        if "best tokens/s" in row
    }


if __name__ == "__main__":
    main()
