"""Exact attention by tiles: nothing as large as queries × keys is ever stored (FlashAttention, Dao et al. 2022).

            k₀  k₁  k₂      a tile of queries walks along the tiles of keys and carries, for each query, the largest score
        q₀  ▣ ─ ▣ ─ ▣  →    so far, the sum of exp(score − largest), and the unnormalised output; when the largest moves,
        q₁  ▣ ─ ▣ ─ ▣  →    both are rescaled. Only the output and L = largest + log(sum) are kept: O(n).

Backward computes every tile again, P = exp(S − L), so it needs no more room. Masks, biases and score terms are made for
one tile at a time from the coordinates of its tokens; tiles in which nobody sees anybody are passed over.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.nn.attend import grouped
from regard.nn.coords import Coords
from regard.nn.dropout import dropout, new_seed
from regard.nn.mask import Rule, visible
from regard.nn.position import Position


@dataclasses.dataclass(frozen=True)
class Asked:
    """What is asked of attention from tokens at `q` to tokens at `k`; all of it is worked out a tile at a time."""

    rule: Rule
    q: Coords
    k: Coords
    scale: float
    position: Position | None = None
    """Its `bias`, `score` and `blend` take part; turning queries and keys comes before."""
    layer: nn.Module | None = None
    """The layer's own map of position codes, where the position projects."""
    dropout: float = 0.0
    tile: int = 128

    def learned(self) -> list[Tensor]:
        """Parameters beside queries, keys and values that a gradient flows to."""
        parts = [part for part in (self.position, self.layer) if part is not None]
        return [p for part in parts for p in part.parameters() if p.requires_grad]


def flash(q: Tensor, k: Tensor, v: Tensor, asked: Asked) -> Tensor:
    """softmax(q·kᵀ·scale + …)·v for q (b, h, n, e) and k, v (b, g, m, e), where g divides h."""
    seed = new_seed() if asked.dropout else 0
    return _Flash.apply(asked, seed, _Cast.of(q), q, k, v, *asked.learned())  # type: ignore[no-any-return, no-untyped-call]


@torch.no_grad()
def rows_of_weights(
    q: Tensor, k: Tensor, asked: Asked, rows: Sequence[int] | None = None, heads: Sequence[int] | None = None
) -> Tensor:
    """The exact weights of chosen queries and heads, (b, heads, rows, m): beside them only tiles are held."""
    chosen = torch.arange(q.shape[2], device=q.device) if rows is None else torch.tensor(rows, device=q.device)
    picked = slice(None) if heads is None else list(heads)
    cast, out = _Cast.of(q), []
    with cast.off():
        for i in (chosen[part] for part in _steps(len(chosen), asked.tile)):
            scores = [
                q.new_full((*q.shape[:2], i.numel(), columns.stop - columns.start), -torch.inf, dtype=cast.kind)
                if (tile := _Tile.at(asked, i, columns)) is None
                else tile.scores(q[:, :, i], k[:, :, columns], cast)
                for columns in _steps(k.shape[2], asked.tile)
            ]
            part = torch.cat([s[:, picked] for s in scores], -1)
            unseen = part.amax(-1, keepdim=True) == -torch.inf
            out.append(part.softmax(-1).masked_fill_(unseen, 0.0).to(q.dtype))
    return torch.cat(out, 2)


@dataclasses.dataclass(frozen=True)
class _Cast:
    """Sums run in `kind`, at least single precision; score terms in the mixed precision the caller runs in."""

    device: str
    kind: torch.dtype
    mixed: bool
    low: torch.dtype

    @classmethod
    def of(cls, q: Tensor) -> _Cast:
        device = q.device.type
        mixed, low = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
        return cls(device, torch.promote_types(q.dtype, torch.float32), mixed, low)

    def off(self) -> torch.autocast:
        return torch.autocast(self.device, enabled=False)

    def on(self) -> torch.autocast:
        return torch.autocast(self.device, dtype=self.low, enabled=self.mixed, cache_enabled=False)


@dataclasses.dataclass(frozen=True)
class _Tile:
    """Some queries and some keys that are not all hidden from one another."""

    asked: Asked
    keep: Tensor | None
    """Who sees whom, (b | 1, 1, n | 1, m); None for all."""
    q: Coords
    k: Coords

    @classmethod
    def at(cls, asked: Asked, rows: slice | Tensor, columns: slice) -> _Tile | None:
        q, k = asked.q.part(rows), asked.k.part(columns)
        keep = visible(asked.rule, q, k)
        if keep is None or keep.all():
            return cls(asked, None, q, k)
        return cls(asked, keep.unsqueeze(1), q, k) if keep.any() else None

    def prepare(self) -> Any:
        """What the position makes of these pairs."""
        position, layer = self.asked.position, self.asked.layer
        if position is None:
            return None
        p = position.prepare(self.q, self.k)
        return p if layer is None else position.project(p, layer)

    def added(self, q: Tensor, k: Tensor, p: Any) -> Tensor | None:
        """What positions add to the scaled scores."""
        position = self.asked.position
        if position is None:
            return None
        bias = position.bias(p)
        if "content" not in position.acts:
            return bias
        score = position.score(q, k, p) * self.asked.scale
        return score if bias is None else score + bias

    def scores(self, q: Tensor, k: Tensor, cast: _Cast, added: Tensor | None = None) -> Tensor:
        """The scaled scores of the tile, −∞ where a key is hidden; `added` is worked out unless it is given."""
        if added is None and self.asked.position is not None:
            with cast.on():
                added = self.added(q, k, self.prepare())
        scores = grouped(q.to(cast.kind) * self.asked.scale, k.to(cast.kind).mT)
        if added is not None:
            scores = scores + added
        return scores if self.keep is None else scores.masked_fill_(~self.keep, -torch.inf)

    def blend(self, weights: Tensor, p: Any) -> Tensor | None:
        position = self.asked.position
        return None if position is None or "content" not in position.acts else position.blend(weights, p)


class _Flash(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, asked: Asked, seed: int, cast: _Cast, q: Tensor, k: Tensor, v: Tensor, *learned: Tensor
    ) -> Tensor:
        b, h, n, _ = q.shape
        out = q.new_zeros(b, h, n, v.shape[-1])
        log = q.new_empty(b, h, n, 1, dtype=cast.kind)
        with cast.off():
            for rows in _steps(n, asked.tile):
                top = log.new_full(log[:, :, rows].shape, -torch.inf)
                total, made = torch.zeros_like(top), out.new_zeros(out[:, :, rows].shape, dtype=cast.kind)
                for columns in _steps(k.shape[2], asked.tile):
                    tile = _Tile.at(asked, rows, columns)
                    if tile is None:
                        continue
                    with cast.on():
                        p = tile.prepare()
                        added = tile.added(q[:, :, rows], k[:, :, columns], p)
                    scores = tile.scores(q[:, :, rows], k[:, :, columns], cast, added)
                    higher = torch.maximum(top, scores.amax(-1, keepdim=True))
                    base = higher.masked_fill(higher == -torch.inf, 0.0)  # nothing seen so far
                    weights, shrink = scores.sub_(base).exp_(), (top - base).exp_()
                    total = total * shrink + weights.sum(-1, keepdim=True)
                    mixed = dropout(weights, asked.dropout, _seed(seed, asked, rows, columns))
                    made = made * shrink + grouped(mixed, v[:, :, columns].to(cast.kind))
                    with cast.on():
                        blend = tile.blend(mixed.to(v.dtype), p)
                    made = made if blend is None else made + blend
                    top = higher
                out[:, :, rows] = made / total.masked_fill(total == 0, 1.0)
                log[:, :, rows] = (top + total.log()).masked_fill(total == 0, torch.inf)
        ctx.save_for_backward(q, k, v, out, log)
        ctx.asked, ctx.seed, ctx.cast, ctx.learned = asked, seed, cast, learned
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (q, k, v, out, log), asked, cast = ctx.saved_tensors, ctx.asked, ctx.cast
        grad = grad.to(cast.kind)
        delta = (grad * out).sum(-1, keepdim=True)
        sums = [torch.zeros_like(t, dtype=torch.promote_types(t.dtype, cast.kind)) for t in (q, k, v, *ctx.learned)]
        with cast.off():
            for columns in _steps(k.shape[2], asked.tile):
                for rows in _steps(q.shape[2], asked.tile):
                    tile = _Tile.at(asked, rows, columns)
                    if tile is None:
                        continue
                    one = _Again(tile, cast, q[:, :, rows], k[:, :, columns], v[:, :, columns], ctx.learned)
                    parts = one.grads(log[:, :, rows], delta[:, :, rows], grad[:, :, rows],
                                      _seed(ctx.seed, asked, rows, columns))  # fmt: skip
                    for total, part, where in zip(sums[:3], parts[:3], (rows, columns, columns), strict=True):
                        total[:, :, where] += part
                    for total, part in zip(sums[3:], parts[3:], strict=True):
                        total += 0.0 if part is None else part
        grads = (s.to(t.dtype) for s, t in zip(sums, (q, k, v, *ctx.learned), strict=True))
        return (None, None, None, *grads)


@dataclasses.dataclass(frozen=True)
class _Again:
    """A tile computed once more, on the way back."""

    tile: _Tile
    cast: _Cast
    q: Tensor
    k: Tensor
    v: Tensor
    learned: Sequence[Tensor]

    def grads(self, log: Tensor, delta: Tensor, grad: Tensor, seed: int) -> list[Tensor]:
        """Gradients of the tile's queries, keys, values and learned terms: dS = P∘(dP − Δ), where Δ = Σ dO∘O."""
        asked, cast = self.tile.asked, self.cast
        wide = [t.to(cast.kind) for t in (self.q, self.k, self.v)]
        with torch.enable_grad(), cast.on():
            q, k = (t.detach().requires_grad_() for t in (self.q, self.k))
            p = self.tile.prepare()
            added = self.tile.added(q, k, p)
        weights = self.tile.scores(self.q, self.k, cast, None if added is None else added.detach()).sub_(log).exp_()
        mixed = dropout(weights, asked.dropout, seed)
        with torch.enable_grad(), cast.on():
            taken = mixed.to(self.v.dtype).detach().requires_grad_()
            blend = self.tile.blend(taken, p)
        by_blend = _pull(blend, grad, [taken, *self.learned], keep=True)
        d_mixed = grouped(grad, wide[2].mT)
        d_mixed = d_mixed if by_blend[0] is None else d_mixed + by_blend[0]
        d_scores = weights * (dropout(d_mixed, asked.dropout, seed) - delta)
        by_added = _pull(added, d_scores, [q, k, *self.learned])
        d_q = grouped(d_scores, wide[1]) * asked.scale
        d_k = _regrouped(d_scores, wide[0], self.k.shape[1]) * asked.scale
        d_v = _regrouped(mixed, grad, self.v.shape[1])
        main = [d if extra is None else d + extra for d, extra in zip((d_q, d_k), by_added[:2], strict=True)]
        terms = [a if b is None else b if a is None else a + b for a, b in zip(by_blend[1:], by_added[2:], strict=True)]
        return [*main, d_v, *terms]  # type: ignore[list-item]


def _pull(value: Tensor | None, grad: Tensor, inputs: list[Tensor], keep: bool = False) -> Sequence[Tensor | None]:
    """Carry the gradient of what a position added back to where it came from."""
    if value is None or not value.requires_grad:
        return [None] * len(inputs)
    grad = grad.sum_to_size(value.shape).to(value.dtype)
    return torch.autograd.grad(value, inputs, grad, retain_graph=keep, allow_unused=True)


def _regrouped(a: Tensor, b: Tensor, groups: int) -> Tensor:
    """aᵀ·b (b, g, m, e) of a (b, h, n, m) and b (b, h, n, e), summed over the heads of each group."""
    rows, h, n, _ = a.shape
    a, b = (t.reshape(rows, groups, h // groups * n, t.shape[-1]) for t in (a, b))
    return a.mT @ b


def _steps(n: int, tile: int) -> Iterator[slice]:
    for start in range(0, n, tile):
        yield slice(start, min(start + tile, n))


def _seed(seed: int, asked: Asked, rows: slice, columns: slice) -> int:
    """Each tile drops its own elements, the same ones forward and backward."""
    return seed + rows.start // asked.tile * (asked.k.n // asked.tile + 1) + columns.start // asked.tile
