"""Truncated BPTT: rows continue those of the last batch.

For models with a memory, such as Transformer-XL (Dai et al. 2019, §3.2).

    text      t h e _ c a t _ s a t _ o n _ t h e _ m a t .        2 rows, context 4

    batch     1          2          3
    row 0     t h e _    c a t _    s a t                          with the memory of what it has read so far
    row 1     o n _ t    h e _ m    a t .

With a memory, a model sees far more than its context. Texts are concatenated; the last token of a text has no target, and
`docs` ends the memory there. Later epochs cut the rows at other places.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.bucket import ComputedLengths, LazyBatches
from regard.data.ragged import Ragged
from regard.errors import DataError

Segments = NDArray[np.int64]
"""For each row of a batch: its start in the ids, its length, and the number of earlier tokens in its stream."""


class DocumentNumbers:
    """The number of each token's text, computed on access."""

    def __init__(self, ends: NDArray[np.int64]) -> None:
        self.ends = ends

    def __getitem__(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.searchsorted(self.ends, places, side="right")


class SegmentLengths(ComputedLengths):
    """The lengths of the segments of a stream in one row."""

    def __init__(self, total: int, context: int) -> None:
        self._total, self._context = total, context

    def __len__(self) -> int:
        return -(-self._total // self._context)

    def compute(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.minimum(self._context, self._total - places * self._context)


@dataclasses.dataclass(frozen=True)
class TokenStream:
    """Concatenated texts as token ids, to be read in segments of `context` tokens."""

    ids: NDArray[np.integer[Any]]
    docs: DocumentNumbers | None
    """The number of each token's text; None if there is only one text."""
    context: int
    groups: None = None
    shares: None = None
    left_out: int = 0

    @classmethod
    def of(cls, texts: Ragged, context: int) -> TokenStream:
        """Build a stream from tokenized texts."""
        several = len(texts) > 1 and int(texts.ends[0]) < len(texts.ids)
        return cls(texts.ids, DocumentNumbers(texts.ends) if several else None, context)

    @property
    def lengths(self) -> SegmentLengths:
        """Lengths of the segments if the whole stream is one row."""
        return SegmentLengths(len(self.ids) - 1, self.context)

    def __len__(self) -> int:
        return len(self.lengths)

    def rows(self, count: int, seed: int = 0) -> StreamRows:
        return StreamRows(len(self.ids) - 1, self.context, count, seed)


class StreamRows:
    """A stream of `total` tokens cut into `count` parallel rows of equal length; neighbors share at most one token."""

    def __init__(self, total: int, context: int, count: int, seed: int) -> None:
        if total < count:
            raise DataError(f"a stream of {total} tokens cannot be read in {count} rows; lower train.batch_tokens")
        self.starts = np.array([row * total // count for row in range(count)], np.int64)
        self.length, self.context, self.seed = -(-total // count), context, seed

    def epoch(self, epoch: int) -> SegmentBatches:
        """Return the batches of an epoch in order. The first one may be short, so that epochs are cut at different places."""
        bits = np.random.Philox(np.random.SeedSequence(self.seed, spawn_key=(epoch,)))
        return SegmentBatches(self, int(bits.random_raw() % self.context) if epoch else 0)


class SegmentBatches(LazyBatches):
    """The batches of an epoch, made on access; the first one lacks `short` tokens."""

    def __init__(self, rows: StreamRows, short: int) -> None:
        self._rows, self._short = rows, short

    def __len__(self) -> int:
        return -(-(self._rows.length + self._short) // self._rows.context)

    def _make(self, place: int) -> Segments:
        rows = self._rows
        begin, end = (max(at * rows.context - self._short, 0) for at in (place, place + 1))
        common = np.broadcast_to([min(end, rows.length) - begin, begin], (len(rows.starts), 2))
        return np.concatenate([(rows.starts + begin)[:, None], common], 1)
