"""Windows of consecutive tokens, for language modeling.

    text      t h e _ c a t _ s a t          context 4, stride 4        given   t h e _    wanted   h e _ c
    windows   └─────┘ └─────┘ └───┘                                             c a t _             a t _ s
                                                                                s a                 a t

With a stride below the context, windows overlap: tokens are seen after contexts of different lengths.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from regard.data.ragged import Ragged


@dataclasses.dataclass(frozen=True)
class Windows:
    """Windows of `context` tokens on tokenized texts; no window crosses the end of its text."""

    ids: NDArray[np.int32]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    groups: None = None
    shares: None = None
    left_out: int = 0

    @classmethod
    def of(cls, texts: Ragged, *, context: int, stride: int) -> Windows:
        """Start a window every `stride` tokens, as long as its first token has a successor."""
        starts, lengths, begin = [], [], 0
        for end in texts.ends.tolist():
            first = np.arange(begin, max(end - 1, begin), stride, dtype=np.int64)
            if stride < context and len(first) > 1:  # a tail shorter than the context is part of the previous window
                first = first[: max(1, int(np.searchsorted(first, end - context, side="left")) + 1)]
            starts.append(first)
            lengths.append(np.minimum(context, end - 1 - first))
            begin = end
        return cls(texts.ids, np.concatenate(starts), np.concatenate(lengths))

    def __len__(self) -> int:
        return len(self.starts)


def fingerprint_texts(texts: Sequence[str]) -> str:
    """Return the SHA-256 of texts in order."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(f"{len(text)}\n".encode() + text.encode())
    return digest.hexdigest()
