"""Coordinates of tokens: position, document, tag, segment.

They describe the current tokens *and* those that a state remembers. Every mask, position code and cache is derived from them,
so none needs an offset of its own. Padding has the position −1. Static facts that are known when a batch is made (`first`,
`padded`) travel along; plans are made from those alone, without reading a tensor.

    right-padded batch        pos  0 1 2 3      first=0, padded      left-padded    pos −1 −1  0  1     first=None, padded
    of lengths 4 and 2             0 1 −1 −1                         prompt              0  1  2  3

    one token after seven     pos  7            first=7              two documents  pos  0 1 2 0 1      first=None
    remembered                                                       in one row     doc  0 0 0 1 1
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import ShapeError

PAD = -1
"""The position of padding."""
OPTIONAL = ("doc", "tag", "segment")
"""Tensors that are optional."""


Together = tuple[int, int, bool]
"""Layout of joined coordinates: the numbers of rows, and whether padding stands on the left."""
Tags = Literal["first", "segment"]
"""Tokens tagged as global: the first of each text, or its whole first segment (a question)."""


@dataclasses.dataclass(frozen=True, eq=False)
class Coords:
    """Coordinates (b, n) of tokens; a single row applies to all rows of the batch."""

    pos: Tensor
    doc: Tensor | None = None
    tag: Tensor | None = None
    first: int | None = None
    """Start, if every row holds `first, first + 1, …` from column 0, at least one token, and padding only at its end."""
    padded: bool = False
    segment: Tensor | None = None
    """Part of its text to which a token belongs (0 or 1 in BERT's sentence pairs); read by embeddings."""
    _picked: list[tuple[Tensor, Coords]] = dataclasses.field(default_factory=list, init=False, repr=False)
    _joined: list[tuple[Coords, Together, Coords]] = dataclasses.field(default_factory=list, init=False, repr=False)

    @classmethod
    def span(cls, n: int, first: int = 0, device: torch.device | str | None = None) -> Self:
        """`n` consecutive tokens, the same for every row of the batch."""
        return cls(torch.arange(first, first + n, device=device).unsqueeze(0), first=first)

    @classmethod
    def lengths(cls, lengths: Sequence[int], device: torch.device | str | None = None, *, left: bool = False) -> Self:
        """Rows of different lengths, padded on the right (or left) to the longest."""
        n = max(lengths, default=0)
        if all(length == n for length in lengths):
            return cls.span(n, device=device)
        column, count = torch.arange(n).unsqueeze(0), torch.tensor(list(lengths)).unsqueeze(1)
        pos = column - (n - count) if left else column
        pos = torch.where((pos >= 0) & (pos < count), pos, PAD).to(device)
        return cls(pos, first=None if left or min(lengths) == 0 else 0, padded=True)

    @classmethod
    def ending(cls, lengths: Sequence[int], end: int, device: torch.device | str | None = None) -> Self:
        """Rows of different lengths whose last tokens stand at one position, `end` − 1; padded on the right."""
        n = max(lengths, default=0)
        if all(length == n for length in lengths):
            return cls.span(n, first=end - n, device=device)
        column, count = torch.arange(n).unsqueeze(0), torch.tensor(list(lengths)).unsqueeze(1)
        return cls(torch.where(column < count, column + end - count, PAD).to(device), padded=True)

    @classmethod
    def documents(cls, lengths: Sequence[Sequence[int]], device: torch.device | str | None = None) -> Self:
        """Rows that contain several documents each, given their lengths, padded on the right."""
        n = max((sum(row) for row in lengths), default=0)
        pos, doc = torch.full((len(lengths), n), PAD), torch.full((len(lengths), n), PAD)
        for r, row in enumerate(lengths):
            start = 0
            for d, length in enumerate(row):
                pos[r, start : start + length] = torch.arange(length)
                doc[r, start : start + length] = d
                start += length
        return cls(pos.to(device), doc.to(device), padded=any(sum(row) < n for row in lengths))

    @property
    def n(self) -> int:
        return self.pos.shape[1]

    @property
    def rows(self) -> int:
        return self.pos.shape[0]

    @property
    def contiguous(self) -> bool:
        return self.first is not None

    @property
    def packed(self) -> bool:
        return self.doc is not None

    @property
    def kept(self) -> Tensor:
        """True for tokens, False for padding."""
        return self.pos >= 0

    def extend(self, later: Coords) -> Coords:
        """Append later tokens."""
        if self.n == 0:
            return later
        follows = self.first is not None and not self.padded and later.first == self.first + self.n
        return Coords(
            _join(self.pos, later.pos),
            _join_optional(self.doc, later.doc, self.pos, later.pos),
            _join_optional(self.tag, later.tag, self.pos, later.pos),
            first=self.first if follows else None,
            padded=self.padded or later.padded,
            segment=_join_optional(self.segment, later.segment, self.pos, later.pos),
        )

    def select(self, rows: Tensor) -> Coords:
        """Select rows; a single row that applies to all stays as it is.

        The same `rows` give the same object again, so layers that shared coordinates before still share them.
        """
        if all(t is None or t.shape[0] == 1 for t in (self.pos, self.doc, self.tag, self.segment)):
            return self
        known = self._picked  # another thread may change it
        if known and (last := known[-1])[0] is rows:
            return last[1]
        picked = self.map(lambda t: t if t.shape[0] == 1 else t.index_select(0, rows))
        known[:] = [(rows, picked)]
        return picked

    def join(self, other: Coords, rows: int, more: int, *, left: bool = False) -> Coords:
        """Append the `more` rows of other coordinates to the `rows` of these; the shorter are padded on the right (or left).

        As with `select`, layers that shared coordinates before still share them.
        """
        together, alike = (rows, more, left), self.n == other.n and self.first == other.first
        single = all(
            at.pos.shape[0] == 1 and not at.padded and not at.packed and at.tag is None for at in (self, other)
        )
        if self.first is not None and alike and single and self.segment is None and other.segment is None:
            return self
        known = self._joined
        if known and (last := known[-1])[0] is other and last[1] == together:
            return last[2]
        n, starts = max(self.n, other.n), self.first is not None and self.first == other.first
        joined = Coords(
            torch.cat([_fill(at.pos, n, PAD, left).expand(r, -1) for at, r in ((self, rows), (other, more))]),
            _stack_optional(self.doc, other.doc, self, other, together),
            _stack_optional(self.tag, other.tag, self, other, together),
            first=self.first if starts and not left and min(self.n, other.n) > 0 else None,
            padded=self.padded or other.padded or self.n != other.n,
            segment=_stack_optional(self.segment, other.segment, self, other, together),
        )
        known[:] = [(other, together, joined)]
        return joined

    @cached_property
    def trimmed(self) -> Coords:
        """Without the first columns in which every row has padding."""
        if not self.padded or self.n == 0:
            return self
        used = self.kept.any(0)
        start = int(used.int().argmax()) if bool(used.any()) else self.n
        return self.part(slice(start, None)) if start else self

    def cut(self, n: int) -> Coords:
        """Keep the first `n` tokens."""
        return self.map(lambda t: t[:, :n])

    def part(self, columns: slice | Tensor) -> Coords:
        """Select columns; a slice of contiguous rows stays contiguous."""
        start = columns.start or 0 if isinstance(columns, slice) else None
        keeps = self.first is not None and start is not None and (start == 0 or not self.padded)
        first = (self.first or 0) + (start or 0) if keeps else None
        return dataclasses.replace(self.map(lambda t: t[:, columns]), first=first)

    def take(self, columns: Tensor) -> Coords:
        """Select columns (b | 1, x) of each row; −1 gives padding."""
        index = columns.clamp(min=0)
        taken = self.map(lambda t: torch.take_along_dim(t, index, 1))
        return dataclasses.replace(taken, pos=taken.pos.where(columns >= 0, PAD), first=None, padded=True)

    def hide(self, those: Tensor) -> Coords:
        """Turn `those` tokens (b | 1, n) into padding."""
        return dataclasses.replace(self, pos=self.pos.where(~those, PAD), first=None, padded=True)

    def last(self, n: int) -> Coords:
        """Keep the last `n` tokens."""
        first = None if self.first is None or self.padded else self.first + max(self.n - n, 0)
        return dataclasses.replace(self.map(lambda t: t[:, max(self.n - n, 0) :]), first=first)

    def with_tags(self, which: Tags) -> Coords:
        """Tag tokens, unless some are tagged already."""
        if self.tag is not None or (which == "first" and self.first):
            return self
        if which == "segment" and self.segment is None:
            raise ShapeError("tags are set to the first segment, and the batch has no segments; set Coords.segment")
        tagged = self.pos == 0 if self.segment is None or which == "first" else self.segment == 0
        return dataclasses.replace(self, tag=(tagged & self.kept).long())

    def flip(self) -> Coords:
        """Reverse the order of the tokens."""
        return dataclasses.replace(self.map(lambda t: t.flip(1)), first=None)

    def to(self, device: torch.device | str) -> Coords:
        return self.map(lambda t: t.to(device))

    def flat(self) -> dict[str, Tensor]:
        """Return plain tensors for a checkpoint; `from_flat` restores them."""
        facts = torch.tensor([self.contiguous, self.first or 0, self.padded])
        tensors = {name: getattr(self, name) for name in ("pos", *OPTIONAL)} | {"facts": facts}
        return {name: t for name, t in tensors.items() if t is not None}

    @classmethod
    def from_flat(cls, tensors: Mapping[str, Tensor]) -> Self:
        """Restore coordinates from the tensors of `flat`."""
        contiguous, first, padded = tensors["facts"].tolist()
        known = {name: tensors.get(name) for name in OPTIONAL}
        return cls(tensors["pos"], **known, first=first if contiguous else None, padded=bool(padded))

    def map(self, change: Callable[[Tensor], Tensor]) -> Coords:
        """Apply a change to each tensor; the caller adjusts `first` and `padded`."""
        doc, tag, segment = (None if t is None else change(t) for t in (self.doc, self.tag, self.segment))
        return dataclasses.replace(self, pos=change(self.pos), doc=doc, tag=tag, segment=segment)


def _join(a: Tensor, b: Tensor) -> Tensor:
    rows = max(a.shape[0], b.shape[0])
    return torch.cat([a.expand(rows, -1), b.expand(rows, -1)], dim=1)


def _join_optional(a: Tensor | None, b: Tensor | None, like_a: Tensor, like_b: Tensor) -> Tensor | None:
    if a is None and b is None:
        return None
    return _join(torch.zeros_like(like_a) if a is None else a, torch.zeros_like(like_b) if b is None else b)


def _fill(t: Tensor, n: int, value: int, left: bool) -> Tensor:
    more = n - t.shape[1]
    return F.pad(t, (more, 0) if left else (0, more), value=value) if more else t


def _stack_optional(a: Tensor | None, b: Tensor | None, at: Coords, other: Coords, together: Together) -> Tensor | None:
    if a is None and b is None:
        return None
    rows, more, left = together
    sides = ((a, at, rows), (b, other, more))
    each = [(torch.zeros_like(side.pos) if t is None else t).expand(count, -1) for t, side, count in sides]
    return torch.cat([_fill(t, max(at.n, other.n), 0, left) for t in each])


def last_of(those: Tensor, count: int) -> Tensor:
    """Return the columns (b, count) of the last of `those` (b, n) in each row, padded with −1 in front."""
    columns = those.to(torch.uint8).argsort(dim=1, stable=True)[:, max(those.shape[1] - count, 0) :]
    return columns.where(those.gather(1, columns), -1)
