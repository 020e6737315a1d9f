"""Rows of tokens as the sequences that a recurrence reads.

Each document of each row is one sequence. They are laid out as torch's recurrent kernels want them: time first, the longest
sequence first, without padding.

    row 0   a a a b b .        sequences  a b c          packed  a0 c0 b0 | a1 c1 b1 | a2 c2 |
    row 1   . c c c . .                                  sizes      3         3         2
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.nn.core.coords import Coords


class PackedRows:
    """Packing of the tokens of `rows` rows; padding may be anywhere. In `reverse`, sequences start at their last token."""

    def __init__(self, at: Coords, rows: int, *, reverse: bool = False) -> None:
        kept, n = at.kept.expand(rows, -1), at.n
        place = kept.flatten().nonzero().squeeze(1)
        row = place // max(n, 1)
        doc = torch.zeros_like(place) if at.doc is None else at.doc.expand(rows, -1).flatten()[place]
        new = torch.ones_like(place, dtype=torch.bool)
        new[1:] = (row[1:] != row[:-1]) | (doc[1:] != doc[:-1])
        starts, sequence = new.nonzero().squeeze(1), new.cumsum(0) - 1
        time = torch.arange(len(place), device=place.device) - starts[sequence]
        lengths = sequence.bincount()
        time = lengths[sequence] - 1 - time if reverse else time
        order = lengths.argsort(descending=True, stable=True)
        rank = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
        self.rows, self.n, self.count = rows, n, len(order)
        self.tokens = place[(time * len(order) + rank[sequence]).argsort()]
        """For each packed place, its token in the flattened rows."""
        self.sizes = time.bincount().cpu()
        """Number of sequences that have a token at each time."""
        first = starts[order]
        self.row, self.doc = row[first], doc[first]
        """Row and document of each sequence, longest first."""
        end = torch.full((rows,), -1, device=place.device).scatter_reduce_(0, row[starts], starts, "amax")
        self.last = (end[self.row] == first).nonzero().squeeze(1)
        """The sequences that are the last of their row."""
        begin = torch.full((rows,), len(place), device=place.device).scatter_reduce_(0, row[starts], starts, "amin")
        self.continues = begin[self.row] == first
        """True if a sequence is the first of its row, so that it may continue an earlier one."""

    def pack(self, x: Tensor) -> Tensor:
        """(rows, n, d) to (tokens, d)."""
        return x.flatten(0, 1).index_select(0, self.tokens)

    def unpack(self, y: Tensor) -> Tensor:
        """(tokens, d) to (rows, n, d); padding gets zeros."""
        out = y.new_zeros(self.rows * self.n, y.shape[-1])
        return out.index_copy(0, self.tokens, y).view(self.rows, self.n, -1)

    def enter(self, state: Tensor, doc: Tensor) -> Tensor:
        """Return the state (rows, d) of each sequence at its start, zeros unless it continues document `doc` (rows,)."""
        old = state.index_select(0, self.row)
        same = self.continues & (self.doc == doc.index_select(0, self.row))
        return torch.where(same.unsqueeze(-1), old, torch.zeros((), dtype=old.dtype, device=old.device))

    def leave(self, state: Tensor, after: Tensor) -> Tensor:
        """Return the state of each row: that of its last sequence `after` (count, d), or the old one in a row of padding."""
        return state.index_copy(0, self.row[self.last], after[self.last].to(state.dtype))
