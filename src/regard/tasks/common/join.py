"""The outputs for the pieces of a text as those for the whole of it: the best with the best, the second with the second."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from regard.tasks.common.task import Output


def whole(text: str, pieces: Sequence[str], outputs: Sequence[Sequence[Output]]) -> list[Output]:
    """As many outputs as every piece has, with spaces between; log-probabilities add up: no piece knows of the others."""
    if len(outputs) == 1:
        return list(outputs[0])
    read = _first_words(text, pieces)
    return [_joined(read, rank) for rank in zip(*outputs, strict=False)]


def _first_words(text: str, pieces: Sequence[str]) -> list[int]:
    """Which word of the text each piece begins with; it may begin within one. Of the text, only spaces are not in them."""
    starts = [0, *accumulate(map(len, text.split()))]
    letters = [0, *accumulate(sum(map(len, piece.split())) for piece in pieces)]
    return [bisect_right(starts, place) - 1 for place in letters[:-1]]


def _joined(read: Sequence[int], outputs: Sequence[Output]) -> Output:
    scores, log_probs = ([getattr(o, name) for o in outputs] for name in ("score", "log_prob"))
    return Output(" ".join(o.text for o in outputs if o.text), _sum(scores), _sum(log_probs), _more(read, outputs))


def _more(read: Sequence[int], outputs: Sequence[Output]) -> dict[str, Any]:
    """What is said of words: those of later pieces are counted on."""
    more: dict[str, Any] = {}
    if all("words" in o.more for o in outputs):
        more |= {
            "words": [w for o in outputs for w in o.more["words"]],
            "end": math.prod(o.more["end"] for o in outputs),
        }
    if all("alignment" in o.more for o in outputs):
        written = 0
        more["alignment"] = []
        for first, output in zip(read, outputs, strict=True):
            more["alignment"] += [[i + first, j + written] for i, j in output.more["alignment"]]
            written += len(output.text.split())
    return more


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
