"""Span corruption, the pre-training objective of T5.

Random spans of a text are replaced by sentinels (Raffel et al. 2019):

    text      Thank you for inviting me to your party last week
    source    Thank you <0> me to your party <1> week
    target    <0> for inviting <1> last

The number of removed tokens and of spans depends only on the length; their positions are random. Source and target together
restore the text.
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
    """Spans of a text that are removed."""

    density: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """Share of the tokens that are removed."""
    mean_length: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 3.0
    """Mean number of tokens in a span."""
    final_sentinel: bool = False
    """End the target with one more sentinel, as in the figure of the paper, but not in its code."""

    def span_counts(self, n: int) -> tuple[int, int]:
        """Return how many of `n` tokens are removed (at least one, never all), and in how many spans."""
        noise = min(max(round(n * self.density), 1), n - 1)
        return noise, min(max(round(noise / self.mean_length), 1), n - noise)

    def lengths(self, n: int) -> tuple[int, int]:
        """Return the lengths of source and target for a text of `n` tokens, each with its end token."""
        noise, spans = self.span_counts(n)
        return n - noise + spans + 1, noise + spans + self.final_sentinel + 1

    def longest_text(self, room: int) -> int:
        """Return the length of the longest text whose source and target fit into `room` tokens; below 2 none does."""
        texts = range(2 * room + 2)  # of a longer text, one side has more than half
        return bisect.bisect_right(texts, room, lo=2, key=lambda n: max(self.lengths(n))) - 1

    def draw_spans(self, n: int, rng: Rng) -> NDArray[np.int64]:
        """Draw the spans among `n` tokens, as (spans, 2): start and end; at least one token remains between two spans.

        The authors' code puts a span at the end of every text, so of a short text only the end is ever removed; here all
        positions are alike.
        """
        noise, spans = self.span_counts(n)
        gaps, sizes = _composition(n - noise + 2, spans + 1, rng), _composition(noise, spans, rng)
        start = np.cumsum(gaps[:-1]) - 1 + np.cumsum(sizes) - sizes  # the two outer gaps may be 0, so they are one less
        return np.stack([start, start + sizes], 1)


def _composition(n: int, parts: int, rng: Rng) -> NDArray[np.int64]:
    """Draw a composition of `n` into positive parts, uniformly."""
    cuts = np.sort(rng.permutation(n - 1)[: parts - 1]) + 1
    return np.diff(cuts, prepend=0, append=n)


def corrupt(ids: Ids, spans: NDArray[np.int64], sentinels: Ids, *, final_sentinel: bool = False) -> tuple[Ids, Ids]:
    """Return source and target, without end tokens, of a text with these spans removed."""
    source, target, last = list[Ids](), list[Ids](), 0
    for sentinel, (start, end) in zip(sentinels[:, None], spans.tolist(), strict=False):
        source += [ids[last:start], sentinel]
        target += [sentinel, ids[start:end]]
        last = end
    closed = [sentinels[len(spans) : len(spans) + 1]] if final_sentinel else []
    return np.concatenate([*source, ids[last:]]), np.concatenate([*target, *closed])


def restore(source: Sequence[int], target: Sequence[int], sentinels: Sequence[int]) -> list[int]:
    """Restore a text: replace each sentinel of the source by what the target has after it, if anything."""
    known, said = set(sentinels), dict[int, list[int]]()
    current: list[int] = []
    for token in target:
        if token in known:
            current = said.setdefault(token, [])
        else:
            current.append(token)
    return [t for token in source for t in (said.get(token, []) if token in known else [token])]
