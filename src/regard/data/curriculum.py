"""Curriculum: short examples first.

Examples may have at most `start` tokens at first; the limit grows evenly until all are in use after `steps` batches. As in the
curriculum of the Neural GPU (Kaiser & Sutskever 2015), longer examples are preferred within the limit, and a quarter of the
batches ignore it. A batch has examples of like lengths.

The limit depends on the number of the batch alone, so the order is a function of seed, epoch and position: a resumed run
continues exactly. An epoch has as many batches as one without a curriculum; within it, examples are drawn with repetition.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regard.data.bucket import Buckets, Indices, LazyBatches
from regard.spec import Count, Spec, spec

LONGER = 0.6
"""Share of batches whose length is the larger of two that were drawn."""
FREE = 0.25
"""Share of batches of any length."""
SPREAD = 4
"""A batch is drawn from as many examples of like lengths as would fill this many."""


@spec
class Curriculum(Spec):
    """Short examples first: at most `start` tokens, and all of them after `steps` batches."""

    start: Count = 8
    """Maximum number of tokens of an example, on its longer side, at the first batch."""
    steps: Count = 5000
    """Number of batches until examples of all lengths are used."""


class CurriculumOrder:
    """The batches of every epoch."""

    def __init__(self, curriculum: Curriculum, buckets: Buckets) -> None:
        self.curriculum, self.seed, self.tokens = curriculum, buckets.seed, buckets.tokens
        lengths = np.asarray(buckets.lengths[:])
        longest = np.maximum(lengths.reshape(len(lengths), -1).max(1), 1)
        self.line = np.argsort(longest, kind="stable")
        self.longest = longest[self.line]
        self.count = len(buckets.epoch(0))

    def epoch(self, epoch: int) -> Sequence[Indices]:
        return CurriculumBatches(self, epoch)

    def limit(self, number: int) -> int:
        """Return the maximum length of the examples of a batch, counted from 0 over all epochs."""
        start, end = self.curriculum.start, int(self.longest[-1])
        return max(start + (end - start) * min(number, self.curriculum.steps) // self.curriculum.steps, start)

    def draw(self, number: int) -> Indices:
        """Return the examples of a batch."""
        bits = np.random.Philox(np.random.SeedSequence(self.seed, spawn_key=(4, number)))
        longer, free, first, second = (float(bits.random_raw()) / 2**64 for _ in range(4))
        share = max(first, second) if longer < LONGER else first
        short = int(np.searchsorted(self.longest, self.limit(number), side="right"))
        end = len(self.line) if free < FREE or not short else short
        place = min(int(share * end), end - 1)
        rows = max(self.tokens // int(self.longest[place]), 1)
        low = max(min(place - SPREAD * rows // 2, end - SPREAD * rows), 0)
        high = min(low + SPREAD * rows, end)
        drawn = low + np.argsort(bits.random_raw(high - low), kind="stable")[:rows]
        cost = np.maximum.accumulate(self.longest[drawn]) * np.arange(1, len(drawn) + 1)
        return self.line[drawn[: max(int(np.count_nonzero(cost <= self.tokens)), 1)]]


class CurriculumBatches(LazyBatches):
    """The batches of one epoch."""

    def __init__(self, order: CurriculumOrder, epoch: int) -> None:
        self._order, self._first = order, epoch * order.count

    def __len__(self) -> int:
        return self._order.count

    def _make(self, place: int) -> Indices:
        return self._order.draw(self._first + place)
