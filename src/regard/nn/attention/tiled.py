"""Exact attention in tiles (FlashAttention).

Dao et al. 2022. Nothing as large as queries × keys is ever stored.

            k₀  k₁  k₂      a tile of queries visits the tiles of keys in turn and carries, for each query, the largest score
        q₀  ▣ ─ ▣ ─ ▣  →    so far, the sum of exp(score − largest), and the unnormalized output; when the largest moves,
        q₁  ▣ ─ ▣ ─ ▣  →    both are rescaled. Only the output and L = largest + log(sum) are kept: O(n).

The backward pass recomputes every tile, P = exp(S − L), so it needs no more memory. Masks, biases and score terms are computed
for one tile at a time from the coordinates of its tokens; tiles without a visible pair are skipped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Protocol, overload

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.nn.attention.attend import grouped_matmul
from regard.nn.core.autograd import FunctionContext
from regard.nn.core.coords import Coords
from regard.nn.core.mask import Rule, visible
from regard.nn.core.rng import new_seed
from regard.nn.core.shape import device_kind
from regard.nn.layers.dropout import dropout
from regard.nn.positions.position import Position, Prepared


@dataclasses.dataclass(frozen=True)
class TiledProblem:
    """Attention from tokens at `q` to tokens at `k`, to be computed one tile at a time."""

    rule: Rule
    q: Coords
    k: Coords
    scale: float
    position: Position | None = None
    """Its `bias`, `score` and `output_term` apply here; queries and keys are already rotated."""
    layer: nn.Module | None = None
    """The layer's own projection of position codes, if the position `projects`."""
    dropout: float = 0.0
    tile: int = 128

    def parameters(self) -> list[Tensor]:
        """Return the parameters that receive a gradient in addition to queries, keys and values."""
        parts = [part for part in (self.position, self.layer) if part is not None]
        return [p for part in parts for p in part.parameters() if p.requires_grad]


def tiled_attention(q: Tensor, k: Tensor, v: Tensor, problem: TiledProblem) -> Tensor:
    """softmax(q·kᵀ·scale + …)·v for q (b, h, n, e) and k, v (b, g, m, e), where g divides h."""
    seed = new_seed() if problem.dropout else 0
    return _Flash.apply(problem, seed, _Cast.of(q), q, k, v, *problem.parameters())  # type: ignore[no-any-return, no-untyped-call]


@torch.no_grad()
def compute_weights(
    q: Tensor, k: Tensor, problem: TiledProblem, rows: Sequence[int] | None = None, heads: Sequence[int] | None = None
) -> Tensor:
    """Compute the exact weights of some queries and heads, (b, heads, rows, m); everything else is stored in tiles only."""
    chosen = torch.arange(q.shape[2], device=q.device) if rows is None else torch.tensor(rows, device=q.device)
    picked = slice(None) if heads is None else list(heads)
    cast, out = _Cast.of(q), []

    def scores(i: Tensor, columns: slice) -> Tensor:
        tile = _Tile.at(problem, cast, i, columns)
        if tile is None:
            return q.new_full((*q.shape[:2], len(i), columns.stop - columns.start), -torch.inf, dtype=cast.kind)
        q_i, k_c = q[:, :, i], k[:, :, columns]
        return tile.scores(q_i, k_c, tile.score_term(q_i, k_c, tile.pairs()))

    with cast.off():
        for i in (chosen[part] for part in _steps(len(chosen), problem.tile)):
            part = torch.cat([scores(i, columns)[:, picked] for columns in _steps(k.shape[2], problem.tile)], -1)
            unseen = part.amax(-1, keepdim=True) == -torch.inf
            out.append(part.softmax(-1).masked_fill_(unseen, 0.0).to(q.dtype))
    return torch.cat(out, 2)


@dataclasses.dataclass(frozen=True)
class _Cast:
    """Sums are computed in `kind`, at least single precision; position terms in the mixed precision of the caller."""

    device: str
    kind: torch.dtype
    mixed: bool
    low: torch.dtype

    @classmethod
    def of(cls, q: Tensor) -> _Cast:
        device = device_kind(q)
        mixed, low = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
        return cls(device, torch.promote_types(q.dtype, torch.float32), mixed, low)

    def off(self) -> torch.autocast:
        return torch.autocast(self.device, enabled=False)

    def on(self) -> torch.autocast:
        return torch.autocast(self.device, dtype=self.low, enabled=self.mixed, cache_enabled=False)


@dataclasses.dataclass(frozen=True)
class _Tile:
    """Some queries and some keys with at least one visible pair."""

    problem: TiledProblem
    cast: _Cast
    seed: int
    """Dropout differs from tile to tile, and is the same forward and backward."""
    keep: Tensor | None
    """The visible pairs, (b | 1, 1, n | 1, m); None for all."""
    q: Coords
    k: Coords

    @classmethod
    def at(
        cls, problem: TiledProblem, cast: _Cast, rows: slice | Tensor, columns: slice, seed: int = 0
    ) -> _Tile | None:
        q, k = problem.q.part(rows), problem.k.part(columns)
        keep = visible(problem.rule, q, k)
        if keep is None or (not keep.is_meta and keep.all()):
            return cls(problem, cast, seed, None, q, k)
        return cls(problem, cast, seed, keep.unsqueeze(1), q, k) if keep.is_meta or keep.any() else None

    def pairs(self) -> Prepared:
        """Prepare the position for these pairs."""
        position, layer = self.problem.position, self.problem.layer
        if position is None:
            return None
        with self.cast.on():
            p = position.prepare(self.q, self.k)
            return p if layer is None else position.project(p, layer)

    def score_term(self, q: Tensor, k: Tensor, p: Prepared) -> Tensor | None:
        """Return the position's term of the scaled scores."""
        position = self.problem.position
        if position is None:
            return None
        with self.cast.on():
            bias = position.bias(p)
            if "content" not in position.acts:
                return bias
            score = position.score(q, k, p) * self.problem.scale
            return score if bias is None else score + bias

    def output_term(self, weights: Tensor, p: Prepared) -> Tensor | None:
        """Return the position's term of the output."""
        position = self.problem.position
        if position is None or "content" not in position.acts:
            return None
        with self.cast.on():
            return position.output_term(weights, p)

    def scores(self, q: Tensor, k: Tensor, added: Tensor | None) -> Tensor:
        """Return scaled scores plus the position's term; −∞ where a key is hidden."""
        scores = grouped_matmul(q.to(self.cast.kind) * self.problem.scale, k.to(self.cast.kind).mT)
        scores = scores if added is None else scores + added
        return scores if self.keep is None else scores.masked_fill_(~self.keep, -torch.inf)

    def drop(self, x: Tensor) -> Tensor:
        return dropout(x, self.problem.dropout, self.seed)


class _FlashContext(FunctionContext, Protocol):
    problem: TiledProblem
    seed: int
    cast: _Cast
    learned: tuple[Tensor, ...]


class _Flash(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: _FlashContext,
        problem: TiledProblem,
        seed: int,
        cast: _Cast,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *learned: Tensor,
    ) -> Tensor:
        out = q.new_empty(*q.shape[:3], v.shape[-1])
        log = q.new_empty(*q.shape[:3], 1, dtype=cast.kind)
        with cast.off():
            for r, rows in enumerate(_steps(q.shape[2], problem.tile)):
                top = torch.full_like(log[:, :, rows], -torch.inf)
                total, made = torch.zeros_like(top), torch.zeros_like(out[:, :, rows], dtype=cast.kind)
                for c, columns in enumerate(_steps(k.shape[2], problem.tile)):
                    tile = _Tile.at(problem, cast, rows, columns, seed + (r << 31) + c)
                    if tile is None:
                        continue
                    q_r, k_c, v_c = q[:, :, rows], k[:, :, columns], v[:, :, columns]
                    p = tile.pairs()
                    scores = tile.scores(q_r, k_c, tile.score_term(q_r, k_c, p))
                    higher = torch.maximum(top, scores.amax(-1, keepdim=True))
                    base = higher.masked_fill(higher == -torch.inf, 0.0)  # no visible key so far
                    weights, shrink = scores.sub_(base).exp_(), (top - base).exp_()
                    mixed = tile.drop(weights)
                    blend = tile.output_term(mixed.to(v.dtype), p)
                    made = made * shrink + grouped_matmul(mixed, v_c.to(cast.kind))
                    made = made if blend is None else made + blend
                    total, top = total * shrink + weights.sum(-1, keepdim=True), higher
                out[:, :, rows] = made / total.masked_fill(total == 0, 1.0)
                log[:, :, rows] = (top + total.log()).masked_fill(total == 0, torch.inf)
        ctx.save_for_backward(q, k, v, out, log)
        ctx.problem, ctx.seed, ctx.cast, ctx.learned = problem, seed, cast, learned
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: _FlashContext, grad: Tensor) -> tuple[Tensor | None, ...]:
        (q, k, v, out, log), problem, cast = ctx.saved_tensors, ctx.problem, ctx.cast
        grad = grad.to(cast.kind)
        delta = (grad * out).sum(-1, keepdim=True)
        into = (q, k, v, *ctx.learned)
        sums = [torch.zeros_like(t, dtype=torch.promote_types(t.dtype, cast.kind)) for t in into]
        with cast.off():
            for c, columns in enumerate(_steps(k.shape[2], problem.tile)):
                for r, rows in enumerate(_steps(q.shape[2], problem.tile)):
                    tile = _Tile.at(problem, cast, rows, columns, ctx.seed + (r << 31) + c)
                    if tile is None:
                        continue
                    places = [sums[0][:, :, rows], *(s[:, :, columns] for s in sums[1:3]), *sums[3:]]
                    read = q[:, :, rows], k[:, :, columns], v[:, :, columns]
                    parts = _back(tile, *read, ctx.learned, *(t[:, :, rows] for t in (log, delta, grad)))
                    for place, part in zip(places, parts, strict=True):
                        if part is not None:
                            place += part
        return (None, None, None, *(s.to(t.dtype) for s, t in zip(sums, into, strict=True)))


def _back(
    tile: _Tile, q: Tensor, k: Tensor, v: Tensor, learned: Sequence[Tensor], log: Tensor, delta: Tensor, grad: Tensor
) -> list[Tensor | None]:
    """Recompute one tile: gradients of its queries, keys, values and learned terms.

    P = exp(S − L), dP = dO·Vᵀ, dS = P∘(dP − Δ) with Δ = Σ dO∘O; the position's terms use autograd.
    """
    scale, wide = tile.problem.scale, [t.to(tile.cast.kind) for t in (q, k, v)]
    with torch.enable_grad():
        q, k = (t.detach().requires_grad_() for t in (q, k))
        p = tile.pairs()
        added = tile.score_term(q, k, p)
    weights = tile.scores(q.detach(), k.detach(), None if added is None else added.detach()).sub_(log).exp_()
    mixed = tile.drop(weights)
    with torch.enable_grad():
        taken = mixed.to(v.dtype).detach().requires_grad_()
        blend = tile.output_term(taken, p)
    by_blend = _pull(blend, grad, [taken, *learned], again=True)
    d_weights = tile.drop(_plus(grouped_matmul(grad, wide[2].mT), by_blend[0]))
    d_scores = weights * (d_weights - delta)
    by_added = _pull(added, d_scores, [q, k, *learned])
    d_q = grouped_matmul(d_scores, wide[1]) * scale
    d_k = _sum_groups(d_scores, wide[0], k.shape[1]) * scale
    terms = [_plus(a, b) for a, b in zip(by_blend[1:], by_added[2:], strict=True)]
    return [_plus(d_q, by_added[0]), _plus(d_k, by_added[1]), _sum_groups(mixed, grad, v.shape[1]), *terms]


def _pull(value: Tensor | None, grad: Tensor, into: list[Tensor], again: bool = False) -> Sequence[Tensor | None]:
    """Pass the gradient of a position's term on to its inputs."""
    if value is None or not value.requires_grad:
        return [None] * len(into)
    grad = grad.sum_to_size(value.shape).to(value.dtype)
    return torch.autograd.grad(value, into, grad, retain_graph=again, allow_unused=True)


@overload
def _plus(a: Tensor, b: Tensor | None) -> Tensor: ...
@overload
def _plus(a: Tensor | None, b: Tensor | None) -> Tensor | None: ...
def _plus(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b


def _sum_groups(a: Tensor, b: Tensor, groups: int) -> Tensor:
    """Compute aᵀ·b (b, g, m, e) for a (b, h, n, m) and b (b, h, n, e), summed over the heads of each group."""
    rows, h, n, _ = a.shape
    a, b = (t.reshape(rows, groups, h // groups * n, t.shape[-1]) for t in (a, b))
    return a.mT @ b


def _steps(n: int, tile: int) -> Iterator[slice]:
    for start in range(0, n, tile):
        yield slice(start, min(start + tile, n))
