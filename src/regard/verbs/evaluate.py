"""`regard eval`: the task's own scores, and for two models their difference with a paired bootstrap (Koehn 2004)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import regard
from regard.data.sources import Corpus, read
from regard.errors import SpecError
from regard.report.table import Table
from regard.tasks.metrics import METRICS


def evaluate_models(
    paths: Sequence[str],
    files: Sequence[str],
    *,
    metrics: Sequence[str] | None = None,
    beam: int | None = None,
    samples: int = 1000,
    device: str = "auto",
) -> dict[str, Any]:
    """Scores of one model, or of two and their difference, on one corpus."""
    if len(paths) not in (1, 2):
        raise SpecError(f"eval takes one or two model folders, got {len(paths)}: {', '.join(paths) or 'none'}")
    if not files:
        raise SpecError("eval needs data: two text files, or one .tsv, .csv or .jsonl file")
    pairs = read(Corpus(paths=tuple(files)))
    outputs, names = [], list(metrics or ())
    for path in paths:
        model = regard.load(path, device=device)
        names = names or list(model.task.metrics)
        outputs.append(model.run(pairs.source, **({} if beam is None else {"beam": beam})))
    chosen = [METRICS[name] for name in names]
    found: dict[str, Any] = {"data": pairs.name, "pairs": len(pairs), "models": []}
    for path, lines in zip(paths, outputs, strict=True):
        scores = {m.kind: m.score(lines, pairs.target) for m in chosen}
        found["models"].append({"model": path, "scores": scores})
    found["signatures"] = {m.kind: m.signature() for m in chosen if m.signature()}
    if len(paths) == 2:
        found["difference"] = {
            m.kind: bootstrap(m.score, outputs[0], outputs[1], pairs.target, samples=samples) for m in chosen
        }
    return found


def bootstrap(
    score: Any, first: Sequence[str], second: Sequence[str], references: Sequence[str], *, samples: int, seed: int = 1
) -> dict[str, float]:
    """How much the second is above the first: the difference, its 95 % interval, and how often it is not above."""
    draw = np.random.Generator(np.random.PCG64(seed))
    count, gaps = len(references), []
    for _ in range(samples):
        pick = draw.integers(0, count, count)
        wanted = [references[i] for i in pick]
        gaps.append(score([second[i] for i in pick], wanted) - score([first[i] for i in pick], wanted))
    low, high = np.percentile(gaps, [2.5, 97.5])
    whole = score(second, references) - score(first, references)
    return {
        "difference": whole,
        "low": float(low),
        "high": float(high),
        "not_above": float(np.mean(np.asarray(gaps) <= 0)),
    }


def told(found: dict[str, Any]) -> str:
    """The same for people."""
    names = list(found["models"][0]["scores"])
    rows = [(m["model"], *(round(m["scores"][n], 2) for n in names)) for m in found["models"]]
    lines = [Table(("model", *names), tuple(rows)).markdown(), "", f"{found['pairs']:,} pairs of {found['data']}"]
    lines += [f"{name}: {signature}" for name, signature in found["signatures"].items()]
    for name, gap in found.get("difference", {}).items():
        lines.append(
            f"{name}: second − first = {gap['difference']:+.2f} (95 % interval {gap['low']:+.2f} … {gap['high']:+.2f}, "
            f"not above in {100 * gap['not_above']:.1f} % of the samples)"
        )
    return "\n".join(lines)
