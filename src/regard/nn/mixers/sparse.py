"""Sparse attention over strided or fixed patterns.

Sparse Transformer (Child et al. 2019, §4.2): n·√n pairs. With `stride` near √n, every token reaches every other in two steps.

    Strided(3), causal                          Fixed(3), causal
    ■ . . . . . . .    the last `stride`        ■ . . . . . . .    its own block of `stride` positions
    ■ ■ . . . . . .    and every stride-th      ■ ■ . . . . . .    and the last ones of every block before,
    ■ ■ ■ . . . . .    before                   ■ ■ ■ . . . . .    which sum it up
    ■ ■ ■ ■ . . . .                             . . ■ ■ . . . .
    . ■ ■ ■ ■ . . .                             . . ■ ■ ■ . . .
    . . ■ ■ ■ ■ . .                             . . ■ ■ ■ ■ . .
    ■ . . ■ ■ ■ ■ .                             . . ■ . . ■ ■ .
    . ■ . . ■ ■ ■ ■                             . . ■ . . ■ ■ ■

One softmax covers both parts (the merged head of the paper). In an encoder both patterns also look ahead.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import SpecError
from regard.nn.attention.attend import grouped_matmul
from regard.nn.attention.banded import FarKeys, Lanes, TokenSubset, attend_to_neighbors, run_compacted, zero_padding
from regard.nn.core.context import Context
from regard.nn.core.coords import PAD, Coords
from regard.nn.core.mask import Causal, Everything, Fixed, Rule, Strided, Window, visible
from regard.nn.core.mixer import MIXERS, Can, Mixer, Site
from regard.nn.core.shape import merge_heads, sizes, split_heads
from regard.nn.core.state import KeyValues, State
from regard.nn.layers.dropout import dropout
from regard.nn.mixers.full import Full, FullMixer
from regard.nn.mixers.softmax import SoftmaxAttention
from regard.nn.positions.position import Position, Prepared, distance
from regard.registry import kind_of
from regard.spec import spec

Places = tuple[Coords, Coords, Tensor | None]
"""Coordinates of queries and keys, and which keys each query sees."""


@MIXERS.add
@spec
class Sparse(SoftmaxAttention):
    """Softmax attention over a strided or a fixed pattern of positions."""

    pattern: Rule
    can = Can(cross=False)

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, Strided | Fixed):
            raise SpecError(f"pattern should be 'strided' or 'fixed', got {kind_of(type(self.pattern))!r}")
        super().__post_init__()

    def build(self, site: Site) -> SparseMixer:
        return SparseMixer(self, site)

    def twin(self) -> Full:
        return Full(**self.dials(), mask=self.pattern)


class SparseMixer(FullMixer):
    def __init__(self, spec: Sparse, site: Site) -> None:
        super().__init__(spec, site, spec.pattern)
        assert isinstance(spec.pattern, Strided | Fixed)
        self.pattern, self.stride, self.causal = spec.pattern, spec.pattern.stride, site.causal

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        _, n, _ = sizes(x, "b n d", d=self.site.width)
        position, at, before = self.position or ctx.position, ctx.at, 0
        q, k, v = self._query(x), self._key(x), split_heads(self.v(x), self.kv_heads)
        q, k = (self._rotate(t, ctx, at, position) for t in (q, k))
        if state is not None:
            assert isinstance(state, KeyValues)
            at, before = ctx.extend_coords(state.at), state.at.n
            k, v = state.add(k, v, at)
        name = f"{self.site.path}.weights"
        some = ctx.tape.wants_rows(name) and not before and not at.padded
        if (n <= self.stride and not before) or (ctx.tape.wants(name) and not some):
            out, _ = self._attend(q, k, v, ctx, at, position)
        elif before:
            out = self._attend_later(q, k, v, ctx, at, position)
        else:
            out = run_compacted(
                ctx, self._attend_strided if isinstance(self.pattern, Strided) else self._attend_fixed, q, k, v
            )
            if some:
                self._record_rows(q, k, ctx, at, position)
        return self.out(self.pass_heads(zero_padding(merge_heads(out), ctx.at), ctx)), state

    def _attend_later(
        self, q: Tensor, k: Tensor, v: Tensor, ctx: Context, at: Coords, position: Position | None
    ) -> Tensor:
        """Attend from tokens that follow remembered ones, over the columns that any of them sees."""

        def seen() -> tuple[Tensor, Coords]:
            keep = visible(self.rule, ctx.at, at)
            assert keep is not None
            columns = keep.any(1).any(0).nonzero().squeeze(1)
            return columns, at.part(columns)

        columns, there = ctx.once(("seen", self.rule, at), seen)
        return self._attend(q, k.index_select(2, columns), v.index_select(2, columns), ctx, there, position)[0]

    def _attend_fixed(self, ctx: Context, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend tile by tile, where a tile is one block; summary positions are added as far keys."""
        at, tape, position, pattern = ctx.at, ctx.tape.for_tiles(), self.position or ctx.position, self.pattern
        assert isinstance(pattern, Fixed)
        apart = at.first is not None and at.first % self.stride == 0 and not at.packed  # tiles are blocks
        reach = 0 if apart else self.stride - 1

        def look(q: Tensor, k: Tensor, v: Tensor, here: Coords, there: Coords) -> Tensor:
            return self._attend(q, k, v, replace(ctx, at=here, tape=tape), there, position)[0]

        def sums_up() -> tuple[TokenSubset, Coords, list[int]] | None:
            those = TokenSubset.of(pattern.sums_up(at), at)
            return None if those is None else (those, at.hide(those.those), those.those.cumsum(1).amax(0).tolist())

        beside = None
        if found := ctx.once(("sums up", pattern, at), sums_up):
            those, rest, counts = found
            upto = (lambda column: counts[column - 1]) if self.causal else (lambda _: counts[-1])
            beside = FarKeys(those.take(k), those.take(v), those.at, rest, upto)
        ahead = 0 if self.causal else reach
        out = attend_to_neighbors(q, k, v, ctx, at, look, tile=self.stride, back=reach, ahead=ahead, beside=beside)
        ctx.tape.plan(
            self.site.path, f"blocks of {self.stride} and what sums up others; {' '.join(tape.plans.values())}"
        )
        return out

    def _attend_strided(self, ctx: Context, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend with two parts under one softmax: neighboring chunks, and lanes of every stride-th token."""
        size, (b, h, n, e) = self.stride, q.shape
        lanes, count, around = Lanes(size, b, before=0, n=n), -(-n // size), (1, 0 if self.causal else 1)
        near_at, far_at = ctx.once(
            ("strided", size, self.causal, b, ctx.at), lambda: self._places(ctx.at, lanes, around)
        )
        k_near, v_near, k_far, v_far = (*(_cut(t, size, around) for t in (k, v)), *(lanes.deal(t) for t in (k, v)))
        near, p_near = self._scores(_cut(q, size), k_near, ctx, *near_at)
        far, p_far = self._scores(lanes.deal(q), k_far, ctx, *far_at)
        wide = near.shape[-1]
        near = near.view(b, count, h, size, wide).transpose(1, 2)
        scores = torch.cat([near, far.view(b, size, h, count, count).permute(0, 2, 3, 1, 4)], -1)
        unseen = scores.amax(-1, keepdim=True) == torch.finfo(scores.dtype).min
        weights = scores.softmax(-1).masked_fill(unseen, 0.0)
        weights = dropout(weights, self.dropout) if self.training else weights
        by_near = self._sum_values(weights[..., :wide].transpose(1, 2).flatten(0, 1), v_near, ctx, p_near)
        by_far = self._sum_values(weights[..., wide:].permute(0, 3, 1, 2, 4).flatten(0, 1), v_far, ctx, p_far)
        ctx.tape.plan(self.site.path, f"plain: chunks of {size}, and lanes of every {size}th token")
        return by_near.view(b, count, h, size, e).transpose(1, 2).flatten(2, 3)[:, :, :n] + lanes.collect(by_far)

    def _places(self, at: Coords, lanes: Lanes, around: tuple[int, int]) -> tuple[Places, Places]:
        def cut(around: tuple[int, int]) -> Coords:
            def chunks(t: Tensor) -> Tensor:
                return _cut(t.expand(lanes.rows, -1)[:, None, :, None], self.stride, around, PAD).flatten(1)

            return replace(at.map(chunks), first=None, padded=True)

        order, here, there, lane = Causal() if self.causal else Everything(), cut((0, 0)), cut(around), lanes.stand(at)
        beyond, past = distance(lane, lane).abs() > self.stride, visible(order, lane, lane)
        near = visible(Window(self.stride) & order, here, there)
        return (here, there, near), (lane, lane, beyond if past is None else beyond & past)

    def _scores(
        self, q: Tensor, k: Tensor, ctx: Context, here: Coords, there: Coords, keep: Tensor | None
    ) -> tuple[Tensor, Prepared]:
        """Return the scaled scores of one part (the lowest number where a key is hidden) and what the position prepared."""
        position, p = self.position or ctx.position, None
        scores = grouped_matmul(q * self.scale, k.mT)
        if position is not None and position.acts & {"bias", "content"}:
            p = ctx.once((position, "pairs", here, there), lambda: position.prepare(here, there))
            p = p if self.r is None else position.project(p, self.r)
            scores = scores + position.score(q, k, p) * self.scale if "content" in position.acts else scores
            bias = position.bias(p)
            scores = scores if bias is None else scores + bias
        assert keep is not None
        return scores.masked_fill(~keep.unsqueeze(1), torch.finfo(scores.dtype).min), p

    def _sum_values(self, weights: Tensor, v: Tensor, ctx: Context, p: Prepared) -> Tensor:
        position, out = self.position or ctx.position, grouped_matmul(weights, v)
        blend = position.output_term(weights, p) if position is not None and "content" in position.acts else None
        return out if blend is None else out + blend

    def flops(self, n: int, m: int) -> float:
        far = n / self.stride * (self.pattern.summary if isinstance(self.pattern, Fixed) else 1)
        near = self.stride if self.causal or isinstance(self.pattern, Fixed) else 2 * self.stride
        seen = min(near + far / (2 if self.causal else 1), n)
        return Mixer.flops(self, n, m) + 4.0 * seen * self.heads * self.head_width


def _cut(x: Tensor, size: int, around: tuple[int, int] = (0, 0), fill: float = 0.0) -> Tensor:
    """Cut x (b, h, n, e) into chunks as rows, (b·count, h, size, e), with `around` (0 or 1) chunks before and after each."""
    b, h, n, e = x.shape
    x = F.pad(x, (0, 0, 0, -n % size), value=fill).reshape(b, h, -1, size, e)
    chunks = [x]
    if around[0]:
        chunks.insert(0, F.pad(x[:, :, :-1], (0, 0, 0, 0, 1, 0), value=fill))
    if around[1]:
        chunks.append(F.pad(x[:, :, 1:], (0, 0, 0, 0, 0, 1), value=fill))
    return torch.cat(chunks, 3).transpose(1, 2).flatten(0, 1)
