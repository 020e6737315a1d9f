"""Join the outputs for the parts of a long text.

The best outputs of all parts make the best output of the whole text, the second best the second, and so on.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from regard.spec import Plain
from regard.tasks.common.task import Output


def join_outputs(text: str, pieces: Sequence[str], outputs: Sequence[Sequence[Output]]) -> list[Output]:
    """Join parts by spaces, as many outputs as every part has. Log-probabilities add up, since parts are independent."""
    if len(outputs) == 1:
        return list(outputs[0])
    firsts = _first_words(text, pieces)
    return [_join(firsts, rank) for rank in zip(*outputs, strict=False)]


def _first_words(text: str, pieces: Sequence[str]) -> list[int]:
    """The index of the word in the text that each part begins with (or within). Only spaces are between the parts."""
    starts = [0, *accumulate(map(len, text.split()))]
    letters = [0, *accumulate(sum(map(len, piece.split())) for piece in pieces)]
    return [bisect_right(starts, place) - 1 for place in letters[:-1]]


def _join(firsts: Sequence[int], outputs: Sequence[Output]) -> Output:
    scores, log_probs = ([getattr(o, name) for o in outputs] for name in ("score", "log_prob"))
    return Output(
        " ".join(o.text for o in outputs if o.text), _sum(scores), _sum(log_probs), _join_words(firsts, outputs)
    )


def _join_words(firsts: Sequence[int], outputs: Sequence[Output]) -> Plain:
    """The word-level results; words of later parts are numbered consecutively."""
    more: Plain = {}
    if all("words" in o.more for o in outputs):
        more["words"] = [w for o in outputs for w in o.more["words"]]
        more["end"] = math.prod(o.more["end"] for o in outputs)
    if all("alignment" in o.more for o in outputs):
        links, written = list[list[int]](), 0
        for first, output in zip(firsts, outputs, strict=True):
            links += [[i + first, j + written] for i, j in output.more["alignment"]]
            written += len(output.text.split())
        more["alignment"] = links
    return more


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
