"""Span corruption (T5, Raffel et al. 2019): some spans of a text are taken out and a sentinel stands where each one was.

    text      Thank you for inviting me to your party last week
    source    Thank you <0> me to your party <1> week
    target    <0> for inviting <1> last

How many tokens go, and in how many spans, depends on the length alone; where they lie is drawn. Source and target together
give the text back.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from regard.data.example_rng import Rng
from regard.spec import Spec, spec

Ids = NDArray[np.int32]


@spec
class Spans(Spec):
    """How much of a text is taken out."""

    density: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """The part of the tokens."""
    mean_length: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 3.0
    """Tokens a span has on average."""
    final_sentinel: bool = False
    """One more sentinel at the end of the target, as the paper's figure has it and its code has not."""

    def span_counts(self, n: int) -> tuple[int, int]:
        """How many of `n` tokens are taken out, and in how many spans: at least one, and never all."""
        noise = min(max(round(n * self.density), 1), n - 1)
        return noise, min(max(round(noise / self.mean_length), 1), n - noise)

    def lengths(self, n: int) -> tuple[int, int]:
        """How long source and target are for a text of `n` tokens, the end mark of each included."""
        noise, spans = self.span_counts(n)
        return n - noise + spans + 1, noise + spans + self.final_sentinel + 1

    def longest_text(self, room: int) -> int:
        """The longest text of which neither side is longer than `room`; below 2 there is none."""
        texts = range(2 * room + 2)  # of any longer one a side has more than half
        return bisect.bisect_right(texts, room, lo=2, key=lambda n: max(self.lengths(n))) - 1

    def draw_spans(self, n: int, rng: Rng) -> NDArray[np.int64]:
        """Where the spans lie among `n` tokens: (spans, 2), first and one past the last; something stays between any two.

        The authors' code has a span at the end of every text, so that of a short text only the end is ever asked for; here
        the ends of a text are like any other place.
        """
        noise, spans = self.span_counts(n)
        gaps, sizes = _composition(n - noise + 2, spans + 1, rng), _composition(noise, spans, rng)
        start = np.cumsum(gaps[:-1]) - 1 + np.cumsum(sizes) - sizes  # the two outer gaps are one less: they may be 0
        return np.stack([start, start + sizes], 1)


def _composition(n: int, parts: int, rng: Rng) -> NDArray[np.int64]:
    """`n` as a sum of so many parts, none of them 0, every way as likely as any other."""
    cuts = np.sort(rng.permutation(n - 1)[: parts - 1]) + 1
    return np.diff(cuts, prepend=0, append=n)


def corrupt(ids: Ids, spans: NDArray[np.int64], sentinels: Ids, *, final_sentinel: bool = False) -> tuple[Ids, Ids]:
    """Source and target, without end marks, of a text from which these spans are taken out."""
    source, target, last = list[Ids](), list[Ids](), 0
    for sentinel, (start, end) in zip(sentinels[:, None], spans.tolist(), strict=False):
        source += [ids[last:start], sentinel]
        target += [sentinel, ids[start:end]]
        last = end
    closed = [sentinels[len(spans) : len(spans) + 1]] if final_sentinel else []
    return np.concatenate([*source, ids[last:]]), np.concatenate([*target, *closed])


def restore(source: Sequence[int], target: Sequence[int], sentinels: Sequence[int]) -> list[int]:
    """The text of a source, with what its target says in the place of each sentinel; nothing where it says nothing."""
    known, said = set(sentinels), dict[int, list[int]]()
    current: list[int] = []
    for token in target:
        if token in known:
            current = said.setdefault(token, [])
        else:
            current.append(token)
    return [t for token in source for t in (said.get(token, []) if token in known else [token])]
