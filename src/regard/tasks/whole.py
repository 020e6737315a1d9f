"""The outputs for the pieces of a text as those for the whole of it: the best with the best, the second with the second."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from regard.tasks.task import Output


def whole(pieces: Sequence[str], outputs: Sequence[Sequence[Output]]) -> list[Output]:
    """As many outputs as every piece has, with spaces between; log-probabilities add up: no piece knows of the others."""
    if len(outputs) == 1:
        return list(outputs[0])
    return [_joined(pieces, rank) for rank in zip(*outputs, strict=False)]


def _joined(pieces: Sequence[str], outputs: Sequence[Output]) -> Output:
    scores, log_probs = ([getattr(o, name) for o in outputs] for name in ("score", "log_prob"))
    return Output(" ".join(o.text for o in outputs if o.text), _sum(scores), _sum(log_probs), _more(pieces, outputs))


def _more(pieces: Sequence[str], outputs: Sequence[Output]) -> dict[str, Any]:
    """What is said of words: those of later pieces are counted on."""
    more: dict[str, Any] = {}
    if all("words" in o.more for o in outputs):
        more |= {
            "words": [w for o in outputs for w in o.more["words"]],
            "end": math.prod(o.more["end"] for o in outputs),
        }
    if all("alignment" in o.more for o in outputs):
        read = written = 0
        more["alignment"] = []
        for piece, output in zip(pieces, outputs, strict=True):
            more["alignment"] += [[i + read, j + written] for i, j in output.more["alignment"]]
            read, written = read + len(piece.split()), written + len(output.text.split())
    return more


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
