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

import numpy as np
from numpy.typing import NDArray

from regard.data.ragged import Ragged
from regard.errors import DataError

Segments = NDArray[np.int64]
"""For each row of a batch: its start in the ids, its length, and the number of earlier tokens in its stream."""


@dataclasses.dataclass(frozen=True)
class TokenStream:
    """Concatenated texts as token ids, to be read in segments of `context` tokens."""

    ids: NDArray[np.int32]
    docs: NDArray[np.int64] | None
    """The number of each token's text; None if there is only one text."""
    context: int
    groups: None = None
    shares: None = None
    left_out: int = 0

    @classmethod
    def of(cls, texts: Ragged, context: int) -> TokenStream:
        """Build a stream from tokenized texts."""
        lengths = texts.lengths
        docs = np.repeat(np.arange(len(lengths)), lengths) if np.count_nonzero(lengths) > 1 else None
        return cls(texts.ids, docs, context)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Lengths of the segments if the whole stream is one row."""
        ends = np.arange(0, len(self.ids) - 1, self.context)
        return np.minimum(self.context, len(self.ids) - 1 - ends)

    def __len__(self) -> int:
        return -(-(len(self.ids) - 1) // self.context)

    def rows(self, count: int, seed: int = 0) -> StreamRows:
        return StreamRows(len(self.ids) - 1, self.context, count, seed)


class StreamRows:
    """A stream of `total` tokens cut into `count` parallel rows of equal length; neighbors share at most one token."""

    def __init__(self, total: int, context: int, count: int, seed: int) -> None:
        if total < count:
            raise DataError(f"a stream of {total} tokens cannot be read in {count} rows; lower train.batch_tokens")
        self.starts = np.arange(count, dtype=np.int64) * total // count
        self.length, self.context, self.seed = -(-total // count), context, seed

    def epoch(self, epoch: int) -> list[Segments]:
        """Return the batches of an epoch in order. The first one may be short, so that epochs are cut at different places."""
        bits = np.random.Philox(np.random.SeedSequence(self.seed, spawn_key=(epoch,)))
        short = int(bits.random_raw() % self.context) if epoch else 0
        begins = [0, *range(self.context - short, self.length, self.context)]
        out = []
        for begin, end in zip(begins, [*begins[1:], self.length], strict=True):
            common = np.broadcast_to([end - begin, begin], (len(self.starts), 2))
            out.append(np.concatenate([(self.starts + begin)[:, None], common], 1))
        return out
