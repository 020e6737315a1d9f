"""Rows that go on: each row of a batch continues where the same row of the batch before stopped (Dai et al. 2019, §3.2).

    text      t h e _ c a t _ s a t _ o n _ t h e _ m a t .        2 rows, context 4

    batch     1          2          3
    row 0     t h e _    c a t _    s a t                          with the memory of what it has read so far
    row 1     o n _ t    h e _ m    a t .

A model that remembers thus reads far more than its context. Texts follow one another; where one ends, its last token is
not asked what comes next, and `docs` says that nothing behind it is remembered. Later epochs cut the rows elsewhere.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from regard.data.ragged import Ragged
from regard.errors import DataError

Segments = NDArray[np.int64]
"""A row for each row of a batch: where in the ids it starts, how long it is, how many tokens of its stream came before."""


@dataclasses.dataclass(frozen=True)
class TokenStream:
    """Texts one after another, as token ids, to be read in segments of `context` tokens."""

    ids: NDArray[np.int32]
    docs: NDArray[np.int64] | None
    """The number of each token's text; None where there is but one."""
    context: int
    groups: None = None
    shares: None = None
    left_out: int = 0

    @classmethod
    def of(cls, texts: Ragged, context: int) -> TokenStream:
        """Texts that say something: one of a single token has nothing to follow it."""
        lengths = texts.lengths
        docs = np.repeat(np.arange(len(lengths)), lengths) if np.count_nonzero(lengths) > 1 else None
        return cls(texts.ids, docs, context)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Of the segments of the whole stream in one row."""
        ends = np.arange(0, len(self.ids) - 1, self.context)
        return np.minimum(self.context, len(self.ids) - 1 - ends)

    def __len__(self) -> int:
        return -(-(len(self.ids) - 1) // self.context)

    def rows(self, count: int, seed: int = 0) -> StreamRows:
        return StreamRows(len(self.ids) - 1, self.context, count, seed)


class StreamRows:
    """A stream of `total` tokens in so many rows side by side, all equally long; neighbours share a token at most."""

    def __init__(self, total: int, context: int, count: int, seed: int) -> None:
        if total < count:
            raise DataError(f"a stream of {total} tokens cannot be read in {count} rows; lower train.batch_tokens")
        self.starts = np.arange(count, dtype=np.int64) * total // count
        self.length, self.context, self.seed = -(-total // count), context, seed

    def epoch(self, epoch: int) -> list[Segments]:
        """The batches of an epoch in their order: the first may be short, so that others are cut elsewhere."""
        bits = np.random.Philox(np.random.SeedSequence(self.seed, spawn_key=(epoch,)))
        short = int(bits.random_raw() % self.context) if epoch else 0
        begins = [0, *range(self.context - short, self.length, self.context)]
        out = []
        for begin, end in zip(begins, [*begins[1:], self.length], strict=True):
            common = np.broadcast_to([end - begin, begin], (len(self.starts), 2))
            out.append(np.concatenate([(self.starts + begin)[:, None], common], 1))
        return out
