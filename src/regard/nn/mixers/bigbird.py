"""BigBird: block-sparse attention for encoders.

Zaheer et al. 2020, §2. Queries and keys are grouped into blocks:

    block  0  1  2  3  4  5  6  7
        0  ■  ■  ■  ■  ■  ■  ■  ■      the first and the last block see all and are seen by all
        1  ■  ■  ■  .  .  ◦  .  ■      the others see themselves and both neighbors,
        2  ■  ■  ■  ■  .  .  ◦  ■      and `random` more (◦), other ones for each head and each layer
        3  ■  .  ■  ■  ■  ◦  .  ■
        …

Blocks are counted within each row, so padding changes nothing. Short rows, which have no more blocks to draw, get full
attention.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from regard.nn.attention.attend import attend
from regard.nn.attention.banded import TokenSubset, run_compacted, zero_padding
from regard.nn.attention.plan import Needs, Plan, plan
from regard.nn.core.context import Context, Tape
from regard.nn.core.coords import PAD, Coords
from regard.nn.core.mask import Everything
from regard.nn.core.mixer import MIXERS, Act, Can, Mixer, Site
from regard.nn.core.shape import merge_heads, sizes, split_heads
from regard.nn.core.state import State
from regard.nn.mixers.full import FullMixer
from regard.nn.mixers.softmax import SoftmaxAttention
from regard.spec import Count, spec

BITS = 31
"""A draw is an integer below 2^31; scaled to the number of blocks, it picks one of them."""


@MIXERS.add
@spec
class BigBird(SoftmaxAttention):
    """Softmax attention over a window of three blocks, the first and the last block, and `random` others."""

    kind = "bigbird"

    block: Count = 64
    random: Annotated[int, Field(ge=0)] = 3
    seed: int = 0
    can = Can(
        causal=False, cross=False, stream=False, rewind=False, packed=False, positions=frozenset[Act]({"rotate"})
    )  # fmt: skip

    def build(self, site: Site) -> BigBirdMixer:
        return BigBirdMixer(self, site)


class BigBirdMixer(FullMixer):
    def __init__(self, spec: BigBird, site: Site) -> None:
        super().__init__(spec, site)
        self.block, self.random, self.seed = spec.block, spec.random, spec.seed
        self.draws: Tensor
        self.register_buffer("draws", self._draw(-(-site.length // spec.block)), persistent=False)

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        sizes(x, "b n d", d=self.site.width)
        name = f"{self.site.path}.weights"
        if ctx.tape.wants(name) and not ctx.tape.wants_rows(name):
            out = self._attend_masked(x, ctx)
        else:
            out = run_compacted(ctx, self._mix, x)
            if ctx.tape.wants(name):
                self._record_some(x, ctx)
        return self.out(self.pass_heads(out, ctx)), state

    def _mix(self, ctx: Context, x: Tensor) -> Tensor:
        at, count = ctx.at, -(-ctx.at.n // self.block)
        q, k, v = self._project(x, ctx)
        if count <= self.random + 4:
            out, _ = self._attend(q, k, v, dataclasses.replace(ctx, tape=Tape()), at, None)
            ctx.tape.plan(self.site.path, "full: so short that all would be seen")
            return zero_padding(merge_heads(out), at)
        blocks = self._blocks(at)
        out = self._over(q, k, v, at, self.table(blocks, count))
        column = torch.arange(at.n, device=x.device) // self.block
        ends = TokenSubset.of((column == 0) | (column == blocks.unsqueeze(1) - 1), at)
        if ends is not None:
            far, _ = self._run(ends.take(q), k, v, plan(Everything(), ends.at, at, self._needs(q)))
            out = ends.scatter(far, out)
        ctx.tape.plan(self.site.path, f"blocks of {self.block}: {5 + self.random} of {count} for each")
        return zero_padding(merge_heads(out), at)

    def _over(self, q: Tensor, k: Tensor, v: Tensor, at: Coords, table: Tensor) -> Tensor:
        """Attend from each block of queries to the blocks of keys in its row of the table."""
        (b, h, n, e), (rows, _, count, slots), groups = q.shape, table.shape, k.shape[1]
        room, size = count * self.block - n, self.block
        head = torch.arange(h, device=q.device).view(-1, 1, 1) * groups // h
        row = torch.arange(b, device=q.device).view(-1, 1, 1, 1)
        index = ((row * groups + head) * count + table.clamp(min=0)).flatten()
        q = F.pad(q, (0, 0, 0, room)).reshape(b * h * count, 1, size, e)
        k, v = (
            F.pad(t, (0, 0, 0, room)).reshape(b * groups * count, size * e).index_select(0, index)
            .view(b * h * count, 1, slots * size, e) for t in (k, v)
        )  # fmt: skip
        pos = F.pad(at.pos, (0, room), value=PAD).view(rows, 1, count, size)
        seen = torch.take_along_dim(pos, table.clamp(min=0).view(rows, h, -1, 1), 2)
        seen = seen.where(table.view(rows, h, -1, 1) >= 0, PAD).view(rows, h, count, -1)
        there = Coords(seen.expand(b, -1, -1, -1).reshape(b * h * count, -1), padded=True)
        out, _ = self._run(q, k, v, plan(Everything(), Coords.span(size), there, self._needs(q)))
        return out.view(b, h, -1, e)[:, :, :n]

    def table(self, blocks: Tensor, count: int) -> Tensor:
        """The blocks that each of `count` blocks sees, (b | 1, h, count, 5 + random), −1 for none, where rows have so many.

        A draw takes one of the blocks that are left: those before it that are seen already make its number higher.
        """
        if count > self.draws.shape[1]:
            self.draws = self._draw(2 * count).to(self.draws.device)
        block, total = torch.arange(count, device=blocks.device), blocks.view(-1, 1, 1)
        ends = [torch.zeros_like(total), (total - 1).where(total > 1, -1)]
        window = [near.where((near > 0) & (near < total - 1), -1) for near in (block - 1, block, block + 1)]
        left = (total - 2).clamp(min=0) - sum((near >= 0).long() for near in window)
        drawn: list[Tensor] = []
        for i in range(self.random):
            number = self.draws[None, :, :count, i] * (left - i).clamp(min=0) >> BITS
            for taken in torch.stack(drawn, -1).sort(-1).values.unbind(-1) if drawn else ():
                number = number + (number >= taken)
            drawn.append(number)
        others = []
        for i, number in enumerate(drawn):
            number = number + 1
            for near in window:
                number = number + ((near >= 0) & (number >= near))
            others.append(number.where(left > i, -1))
        shape = blocks.shape[0], self.heads, count
        return torch.stack([slot.expand(shape) for slot in (*ends, *window, *others)], -1)

    def _draw(self, count: int) -> Tensor:
        """Return draws for `count` blocks, (h, count, random); fewer blocks use the first of them."""
        chance = torch.Generator().manual_seed(self.seed * 10007 + self.site.layer)
        return torch.randint(1 << BITS, (count, self.heads, self.random), generator=chance).transpose(0, 1)

    def _visible(self, x: Tensor, at: Coords, rows: Tensor) -> Tensor:
        """Return which tokens these rows see, (b | 1, h, rows, n)."""
        blocks, count = self._blocks(at), -(-at.n // self.block)
        table = self.table(blocks, count)
        seen = torch.zeros(*table.shape[:3], count + 1, dtype=torch.bool, device=x.device)
        seen = seen.scatter(3, table.remainder(count + 1), True)[..., :count]  # −1 is one place after the last
        block = torch.arange(count, device=x.device)
        seen |= ((block == 0) | (block == blocks.unsqueeze(1) - 1))[:, None, :, None]
        mine = (at.kept.cumsum(1) - 1).clamp(min=0) // self.block
        row, head = torch.arange(table.shape[0], device=x.device), torch.arange(self.heads, device=x.device)
        keep = seen[row.view(-1, 1, 1, 1), head.view(-1, 1, 1), mine[:, None, rows, None], mine[:, None, None, :]]
        return keep & at.kept[:, None, None, :]

    def _record_some(self, x: Tensor, ctx: Context) -> None:
        """Record the weights of the rows and heads that a tape asks for."""
        name = f"{self.site.path}.weights"
        chosen, heads = ctx.tape.choose(name, heads=self.heads, rows=ctx.at.n)
        rows = torch.tensor(chosen, device=x.device)
        q, k, v = self._project(x, ctx)
        how = Plan(False, "plain: the weights are recorded", keep=self._visible(x, ctx.at, rows), empty=True)
        _, weights = attend(q[:, :, rows], k, v, how, scale=self.scale)
        assert weights is not None
        ctx.tape.keep(name, weights if heads is None else weights[:, heads], chosen=True)

    def _attend_masked(self, x: Tensor, ctx: Context) -> Tensor:
        """Compute the same with a mask of tokens, to record the weights."""
        at, rows = ctx.at, torch.arange(ctx.at.n, device=x.device)
        how = Plan(False, "plain: the weights are recorded", keep=self._visible(x, at, rows), empty=True)
        out, weights = self._run(*self._project(x, ctx), how)
        assert weights is not None
        ctx.tape.keep(f"{self.site.path}.weights", weights)
        ctx.tape.plan(self.site.path, how.reason)
        return zero_padding(merge_heads(out), at)

    def _project(self, x: Tensor, ctx: Context) -> tuple[Tensor, Tensor, Tensor]:
        position = self.position or ctx.position
        q, k = (self._rotate(t, ctx, ctx.at, position) for t in (self._query(x), self._key(x)))
        return q, k, split_heads(self.v(x), self.kv_heads)

    def _blocks(self, at: Coords) -> Tensor:
        """Count the blocks of each row, (b | 1)."""
        return -(-at.kept.sum(1) // self.block)

    def _needs(self, q: Tensor) -> Needs:
        return Needs(dropout=self.training and self.dropout > 0, dtype=q.dtype)

    def _run(self, q: Tensor, k: Tensor, v: Tensor, how: Plan) -> tuple[Tensor, Tensor | None]:
        return attend(q, k, v, how, scale=self.scale, dropout=self.dropout if self.training else 0.0)

    def flops(self, n: int, m: int) -> float:
        seen = min((5 + self.random) * self.block, n)
        return Mixer.flops(self, n, m) + 4.0 * seen * self.heads * self.head_width
