"""Attention over neighbors, tile by tile.

Time and memory grow with the length of a row, not with its square.

    queries          ┌───tile───┐
    keys       ├ back ┼──────────┼ ahead ┤        and a few more keys that are visible from far away

Distances are measured in columns, so rows are compacted first (`run_compacted`). A tile reads its keys as a view; in the
backward pass gradients go to the few blocks that the view touches.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.nn.core.context import Context
from regard.nn.core.coords import PAD, Coords

Look = Callable[[Tensor, Tensor, Tensor, Coords, Coords], Tensor]
"""Attention from queries to keys and values, given the coordinates of queries and keys."""


@dataclasses.dataclass(frozen=True, eq=False)
class TokenSubset:
    """A subset of the tokens of each row: `columns` (b | 1, x) in order, −1 where a row has fewer."""

    those: Tensor
    """True for tokens of the subset, (b | 1, n)."""
    columns: Tensor
    at: Coords

    @classmethod
    def of(cls, those: Tensor, at: Coords) -> TokenSubset | None:
        """Return the tokens for which `those` is true, or None if there are none. This reads a tensor."""
        those = those & at.kept
        most = int(those.sum(1).max()) if those.numel() else 0
        if most == 0:
            return None
        columns = (~those).to(torch.uint8).argsort(dim=1, stable=True)[:, :most]
        columns = columns.where(those.gather(1, columns), -1)
        return cls(those, columns, at.take(columns))

    def take(self, x: Tensor) -> Tensor:
        """Return the columns of x (b, …, n, x) that belong to the subset."""
        return _take(x, self.columns.clamp(min=0))

    def scatter(self, y: Tensor, x: Tensor) -> Tensor:
        """Return x (b, h, n, x) with the columns of the subset replaced by y."""
        n = x.shape[2]
        index = self.columns.remainder(n + 1)[:, None, :, None]  # −1 maps to one column after the last
        return F.pad(x, (0, 0, 0, 1)).scatter(2, index.expand_as(y), y)[:, :, :n]


@dataclasses.dataclass(frozen=True, eq=False)
class FarKeys:
    """Keys that are visible from far away, in column order, with their coordinates."""

    k: Tensor
    v: Tensor
    at: Coords
    rest: Coords
    """Coordinates of all columns with these hidden, so that no key is visible twice."""
    upto: Callable[[int], int]
    """Number of far keys needed by a tile whose keys end before a column."""


def run_compacted(ctx: Context, mix: Callable[..., Tensor], *xs: Tensor) -> Tensor:
    """Run `mix(ctx, *xs)` on rows xs (b, …, n, x) without gaps, padding moved to the end; restore the order afterwards."""
    order = ctx.once(("side by side", ctx.at), lambda: _compact_order(ctx.at))
    if order is None:
        return mix(ctx, *xs)
    at = ctx.once(("side by side", order), lambda: ctx.at.take(order))
    return _take(mix(dataclasses.replace(ctx, at=at), *(_take(x, order) for x in xs)), order.argsort(1))


def _compact_order(at: Coords) -> Tensor | None:
    """Return the column order (b | 1, n) that compacts the rows; None if they have no gaps."""
    return (~at.kept).to(torch.uint8).argsort(dim=1, stable=True) if at.padded and at.first is None else None


def _take(x: Tensor, columns: Tensor) -> Tensor:
    """Return columns (b | 1, m) of x (b, …, n, x)."""
    return torch.take_along_dim(x, columns.view(columns.shape[0], *[1] * (x.dim() - 3), -1, 1), -2)


def zero_padding(x: Tensor, at: Coords) -> Tensor:
    """Return x (b, n, d) with zeros at padded positions, whose values depend on how attention was computed."""
    return x.masked_fill(~at.kept.unsqueeze(2), 0.0) if at.padded else x


def attend_to_neighbors(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    ctx: Context,
    at: Coords,
    look: Look,
    *,
    tile: int,
    back: int,
    ahead: int,
    alike: bool = False,
    beside: FarKeys | None = None,
) -> Tensor:
    """Attend from q, the last columns of k and v, to the keys up to `back` columns before and `ahead` columns after.

    With `alike` only distances matter: all tiles of one shape use the same coordinates and share what is derived from them.
    """
    n, m = q.shape[2], k.shape[2]
    keys, values, out = Strip(k, tile), Strip(v, tile), []

    def stand(a: int, b: int, lo: int, hi: int) -> tuple[Coords, Coords]:
        if alike:
            return at.span(b - a, a - lo, at.pos.device), at.span(hi - lo, 0, at.pos.device)
        here, there = at.part(slice(a, b)), slice(lo, hi)
        if beside is None:
            return here, at.part(there)
        return here, beside.at.part(slice(beside.upto(hi))).extend(beside.rest.part(there))

    for a, part in zip(range(m - n, m, tile), torch.split(q.transpose(1, 2), tile, 1), strict=True):
        b = a + part.shape[1]
        lo, hi = max(a - back, 0), min(b + ahead, m)
        where = ("tile", b - a, a - lo, hi - lo) if alike else ("tile", at, beside and beside.at, a, b, lo, hi)
        ends = ctx.once(where, functools.partial(stand, a, b, lo, hi))
        k, v = keys[lo, hi], values[lo, hi]
        if beside is not None:
            far = beside.upto(hi)
            k, v = torch.cat([beside.k[:, :, :far], k], 2), torch.cat([beside.v[:, :, :far], v], 2)
        out.append(look(part.transpose(1, 2), k, v, *ends).transpose(1, 2))
    return torch.cat(out, 1).transpose(1, 2)


@dataclasses.dataclass(frozen=True)
class Lanes:
    """Columns (the last `n`, and `before` more) dealt out in turn to `count` lanes, each a row of its own.

    0 1 2 3 4 5 6   ──deal, count=3──▶   0 3 6        what was `count` places away is the next
                                         1 4 .
                                         2 5 .
    """

    count: int
    rows: int
    before: int
    n: int

    def deal(self, x: Tensor) -> Tensor:
        """(b, h, n, e), with or without the columns before, to (b·count, h, n / count, e)."""
        (front, end), (rows, h, n, e) = self._room(), x.shape
        x = F.pad(x, (0, 0, front if n > self.n else 0, end))
        return x.reshape(rows, h, -1, self.count, e).permute(0, 3, 1, 2, 4).flatten(0, 1)

    def collect(self, x: Tensor) -> Tensor:
        """Undo `deal` for the last `n` columns."""
        _, h, _, e = x.shape
        lanes = x.reshape(self.rows, self.count, h, -1, e).permute(0, 2, 3, 1, 4)
        return lanes.flatten(2, 3)[:, :, : self.n]

    def stand(self, at: Coords) -> Coords:
        """Return the coordinates of the tokens of each lane."""
        room = self._room()

        def deal(t: Tensor) -> Tensor:
            row = F.pad(t.expand(self.rows, -1), room, value=PAD)
            return row.reshape(self.rows, -1, self.count).transpose(1, 2).flatten(0, 1)

        return dataclasses.replace(at.map(deal), first=None, padded=at.padded or any(room))

    def repeat(self, beside: FarKeys, ctx: Context) -> FarKeys:
        """Repeat the far keys of a row for each of its lanes."""
        k, v = (t.repeat_interleave(self.count, 0) for t in (beside.k, beside.v))
        at, rest = beside.at, ctx.once((self, beside.rest), lambda: self.stand(beside.rest))
        each = ctx.once((self, at), lambda: at.map(lambda t: t.expand(self.rows, -1).repeat_interleave(self.count, 0)))
        return FarKeys(k, v, each, rest, beside.upto)

    def _room(self) -> tuple[int, int]:
        return -self.before % self.count, -self.n % self.count


class Strip:
    """A tensor (b, h, n, e) read along n in overlapping pieces, which are views of it.

    A torch slice would return a gradient as long as the whole tensor for every piece, which takes time that grows with n².
    Tokens come first in memory, as linear layers produce and expect them.
    """

    def __init__(self, whole: Tensor, block: int) -> None:
        rows = whole.transpose(1, 2)
        self.rows, self.block = rows.detach(), block
        self.blocks = torch.split(rows, block, 1) if whole.requires_grad else None

    def __getitem__(self, ends: tuple[int, int]) -> Tensor:
        lo, hi = ends
        if self.blocks is None:
            return self.rows[:, lo:hi].transpose(1, 2)
        first = lo // self.block
        touched = self.blocks[first : -(-hi // self.block)]
        piece: Tensor = _Piece.apply(self.rows, lo, hi, first * self.block, *touched)  # type: ignore[no-untyped-call]
        return piece.transpose(1, 2)


class _PieceContext(Protocol):
    lo: int
    hi: int
    start: int
    lengths: list[int]


class _Piece(torch.autograd.Function):
    """Rows lo to hi; their gradient goes to the blocks that contain them, the first of which begins at `start`."""

    @staticmethod
    def forward(ctx: _PieceContext, rows: Tensor, lo: int, hi: int, start: int, *blocks: Tensor) -> Tensor:
        ctx.lo, ctx.hi, ctx.start, ctx.lengths = lo, hi, start, [block.shape[1] for block in blocks]
        return rows[:, lo:hi]

    @staticmethod
    def backward(ctx: _PieceContext, grad: Tensor) -> tuple[Tensor | None, ...]:
        before, after = ctx.lo - ctx.start, ctx.start + sum(ctx.lengths) - ctx.hi
        grad = F.pad(grad, (0, 0, 0, 0, before, after)) if before or after else grad
        return None, None, None, None, *torch.split(grad, ctx.lengths, 1)
