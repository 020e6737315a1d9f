"""Windows of consecutive tokens, for language modeling.

    text      t h e _ c a t _ s a t          context 4, stride 4        given   t h e _    wanted   h e _ c
    windows   └─────┘ └─────┘ └───┘                                             c a t _             a t _ s
                                                                                s a                 a t

With a stride below the context, windows overlap: tokens are seen after contexts of different lengths. Windows are counted, not
listed: first those that are full, then the last window of each text that has a shorter one.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.ragged import Ragged
from regard.data.scratch import ArrayWriter, blocks

Indices = NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Windows:
    """Windows of `context` tokens on tokenized texts; no window crosses the end of its text."""

    texts: Ragged
    context: int
    stride: int
    full: Indices
    """Number of full windows up to the end of each text."""
    short: Indices
    """The texts whose last window is shorter."""

    @classmethod
    def of(cls, texts: Ragged, *, context: int, stride: int) -> Windows:
        """Start a window every `stride` tokens, as long as its first token has a successor.

        If windows overlap, a tail shorter than the context is part of the previous window.
        """
        full, short, total = ArrayWriter(np.int64), ArrayWriter(np.int64), 0
        for some in blocks(len(texts)):
            targets = np.diff(texts.ends[some], prepend=texts.ends[some.start - 1] if some.start else 0) - 1
            found = np.where(targets >= context, (targets - context) // stride + 1, 0)
            full.add(np.cumsum(found) + total)
            total += int(found.sum())
            short.add(np.flatnonzero(targets > found * stride) + some.start)
        return cls(texts, context, stride, full.array(), short.array())

    @property
    def ids(self) -> NDArray[np.integer[Any]]:
        return self.texts.ids

    @property
    def full_count(self) -> int:
        """The number of full windows."""
        return int(self.full[-1]) if len(self.full) else 0

    def __len__(self) -> int:
        return self.full_count + len(self.short)

    def locate(self, indices: Indices) -> tuple[Indices, Indices]:
        """Return where these windows start, and their lengths."""
        starts, lengths = np.empty(len(indices), np.int64), np.full(len(indices), self.context)
        is_full = indices < self.full_count
        if is_full.any():
            wanted = indices[is_full]
            text = np.searchsorted(self.full, wanted, side="right")
            starts[is_full] = self._begin(text) + (wanted - self._before(text)) * self.stride
        if not is_full.all():
            text = self.short[indices[~is_full] - self.full_count]
            skipped = (self.full[text] - self._before(text)) * self.stride
            starts[~is_full] = self._begin(text) + skipped
            lengths[~is_full] = self.texts.ends[text] - self._begin(text) - 1 - skipped
        return starts, lengths

    def _begin(self, text: Indices) -> Indices:
        return _previous(self.texts.ends, text)

    def _before(self, text: Indices) -> Indices:
        return _previous(self.full, text)


def _previous(totals: Indices, which: Indices) -> Indices:
    """Return the total before each of these elements."""
    return np.where(which > 0, totals[np.maximum(which - 1, 0)], 0)
