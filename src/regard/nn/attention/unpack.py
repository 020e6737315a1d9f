"""Split packed rows into documents, and join them again.

    doc  0 0 0 1 1 2      ──split──▶      0 0 0 | 1 1 . | 2 . .      ──join──▶      0 0 0 1 1 2

Every document is padded to the longest.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.nn.core.coords import Coords


class DocumentSplitter:
    """Maps tokens of packed rows to documents; the number of `documents` in a row is counted unless given."""

    def __init__(self, at: Coords, rows: int, documents: int | None = None) -> None:
        assert at.doc is not None
        doc = at.doc.masked_fill(~at.kept, -1).expand(rows, -1)
        self.documents = max(int(doc.max()) + 1, 1) if documents is None else documents
        there = (doc >= 0) & (doc < self.documents)
        doc = doc.masked_fill(~there, self.documents)  # padding, and documents that are not needed
        rank = F.one_hot(doc, self.documents + 1).cumsum(1).gather(2, doc.unsqueeze(2)).squeeze(2) - 1
        self.longest = max(int(rank.masked_fill(~there, 0).max()) + 1, 1)
        self.place = torch.where(there, doc * self.longest + rank, self.documents * self.longest)

    def split(self, x: Tensor, fill: float = 0.0) -> Tensor:
        """(b, h, n, x) to (b, h, documents, longest, x), with `fill` where there is no token."""
        room = x.new_full((*x.shape[:2], self.documents * self.longest + 1, x.shape[3]), fill)
        return room.scatter(2, self._index(x), x)[:, :, :-1].reshape(
            *x.shape[:2], self.documents, self.longest, x.shape[3]
        )

    def join(self, y: Tensor) -> Tensor:
        """Undo `split`; padded positions are zero."""
        flat = F.pad(y.flatten(2, 3), (0, 0, 0, 1))
        return flat.gather(2, self._index(flat))

    def _index(self, x: Tensor) -> Tensor:
        return self.place[:, None, :, None].expand(-1, x.shape[1], -1, x.shape[3])
