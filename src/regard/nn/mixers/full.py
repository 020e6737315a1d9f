"""Full attention: every position looks at every other (Vaswani et al. 2017, §3.2), with all its usual dials.

x ─┬─ q ─ norm? ─ turn ─┐
   ├─ k ─ norm? ─ turn ─┼─ softmax(q·kᵀ·scale + bias)·v ─ out
   └─ v ────────────────┘        keys and values may have fewer heads (grouped), or come from a memory (cross)
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import ShapeError, SpecError
from regard.nn.attend import attend
from regard.nn.context import Context
from regard.nn.coords import Coords
from regard.nn.mask import All, Causal, Everything, Rule
from regard.nn.mixer import Can, Mixer, MixerSpec, Site, check_positions
from regard.nn.norm import NormSpec
from regard.nn.plan import Needs, Plan, plan
from regard.nn.position import Position, PositionSpec
from regard.nn.shape import merge_heads, sizes, split_heads
from regard.nn.state import KeyValues, State, fixed
from regard.registry import kind_of
from regard.spec import Count, Share, spec


@spec
class Full(MixerSpec):
    """Softmax attention over all positions, or over those a mask rule allows."""

    heads: Count
    kv_heads: Count | None = None
    head_width: Count | None = None
    scale: float | None = None
    bias: bool = True
    dropout: Share = 0.0
    mask: Rule | None = None
    position: PositionSpec | None = None
    qk_norm: NormSpec | None = None
    can = Can()

    def __post_init__(self) -> None:
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise SpecError(f"kv_heads should divide heads={self.heads}, got {self.kv_heads}")

    def build(self, site: Site) -> FullMixer:
        return FullMixer(self, site)

    def width_of_head(self, width: int) -> int:
        if self.head_width is None and width % self.heads:
            raise SpecError(f"heads={self.heads} should divide the width {width}, or head_width be set")
        return self.head_width or width // self.heads


@dataclasses.dataclass
class Looked(State):
    """Keys and values of a memory, projected once a sentence."""

    k: Tensor | None = fixed(default=None)
    v: Tensor | None = fixed(default=None)


class FullMixer(Mixer):
    def __init__(self, spec: Full, site: Site) -> None:
        super().__init__(site)
        self.heads, self.kv_heads = spec.heads, spec.kv_heads or spec.heads
        e = self.head_width = spec.width_of_head(site.width)
        self.q = nn.Linear(site.width, self.heads * e, bias=spec.bias)
        self.k = nn.Linear(site.width, self.kv_heads * e, bias=spec.bias)
        self.v = nn.Linear(site.width, self.kv_heads * e, bias=spec.bias)
        self.out = nn.Linear(self.heads * e, site.width, bias=spec.bias)
        self.q_norm, self.k_norm = (spec.qk_norm.build(e) if spec.qk_norm else None for _ in range(2))
        self.scale = e**-0.5 if spec.scale is None else spec.scale
        self.dropout = spec.dropout
        self.cross = site.role == "cross"
        self.position: Position | None = None
        if spec.position is not None:
            check_positions(spec, site, spec.position.acts, kind_of(type(spec.position)))
            here = site.at("position", heads=self.heads, head_width=e)
            self.position = spec.position.build(here)
        if self.cross and spec.mask is not None:
            raise SpecError(f"a mask rule reads the positions of one sequence; {site.path} spans two: leave it out")
        rules = [r for r in (Causal() if site.causal and not self.cross else None, spec.mask) if r is not None]
        self.rule: Rule = Everything() if not rules else rules[0] if len(rules) == 1 else All(tuple(rules))

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        sizes(x, "b n d", d=self.site.width)
        if self.cross:
            return self._look(x, ctx, state)
        position = self.position or ctx.position
        q, k, v = self._query(x), self._key(x), split_heads(self.v(x), self.kv_heads)
        if position is not None and "turn" in position.acts:
            table = ctx.once((position, "table", ctx.at), lambda: position.table(ctx.at))
            q, k = position.turn(q, table), position.turn(k, table)
        at = ctx.at
        if state is not None:
            assert isinstance(state, KeyValues)
            at = ctx.remembered(state.at)
            k, v = state.add(k, v, at)
        p = None
        if position is not None and position.acts & {"bias", "content"}:
            p = ctx.once((position, "pairs", ctx.at, at), lambda: position.prepare(ctx.at, at))
        out = self._attend(q, k, v, ctx, self._plan(ctx, at, q, position, p), position, p)
        return self.out(merge_heads(out)), state

    def _look(self, x: Tensor, ctx: Context, state: State | None) -> tuple[Tensor, State | None]:
        """Cross-attention. Several hypotheses of a sentence share its keys: they queue up as queries of one row."""
        memory = ctx.memory
        if memory is None:
            raise SpecError(f"{self.site.path} attends to a memory and none was given; the model needs an encoder")
        if isinstance(state, Looked) and state.k is not None and state.v is not None:
            k, v = state.k, state.v
        else:
            k, v = self._key(memory.keys), split_heads(self.v(memory.values), self.kv_heads)
            if isinstance(state, Looked):
                state.k, state.v = k, v
        q = self._query(x)
        rows, h, n, e = q.shape
        if rows % k.shape[0]:
            raise ShapeError(
                f"{self.site.path} has {rows} rows, which should be a multiple of the memory's {k.shape[0]}"
            )
        beam = rows // k.shape[0]
        if beam > 1:
            q = q.view(-1, beam, h, n, e).transpose(1, 2).reshape(-1, h, beam * n, e)
        out = self._attend(q, k, v, ctx, self._plan(ctx, memory.at, q, None, None), None, None)
        if beam > 1:
            out = out.view(-1, h, beam, n, e).transpose(1, 2).reshape(rows, h, n, e)
        return self.out(merge_heads(out)), state

    def _query(self, x: Tensor) -> Tensor:
        q = split_heads(self.q(x), self.heads)
        return q if self.q_norm is None else self.q_norm(q)

    def _key(self, x: Tensor) -> Tensor:
        k = split_heads(self.k(x), self.kv_heads)
        return k if self.k_norm is None else self.k_norm(k)

    def _plan(self, ctx: Context, at: Coords, q: Tensor, position: Position | None, p: Any) -> Plan:
        bias = None if position is None else position.bias(p)
        needs = Needs(
            weights=ctx.tape.wants(f"{self.site.path}.weights"),
            content=position is not None and "content" in position.acts,
            bias_grad=bias is not None and bias.requires_grad and torch.is_grad_enabled(),
            dropout=self.training and self.dropout > 0,
            dtype=q.dtype,
        )
        return ctx.once((self.rule, ctx.at, at, needs), lambda: plan(self.rule, ctx.at, at, needs))

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, ctx: Context, how: Plan, position: Position | None, p: Any
    ) -> Tensor:
        out, weights = attend(
            q, k, v, how, scale=self.scale,
            bias=None if position is None else position.bias(p),
            content=(position, p) if position is not None and "content" in position.acts else None,
            dropout=self.dropout if self.training else 0.0,
        )  # fmt: skip
        ctx.tape.plan(self.site.path, how.reason)
        if weights is not None:
            ctx.tape.keep(f"{self.site.path}.weights", weights)
        return out

    def start(self, rows: int, capacity: int) -> State:
        if self.cross:
            return Looked()
        return KeyValues.empty(self.k.weight, rows, self.kv_heads, self.head_width, capacity)

    def flops(self, n: int, m: int) -> float:
        seen = m if self.cross else n / 2 if isinstance(self.rule, Causal) else n
        return 4.0 * seen * self.heads * self.head_width

    def state_numbers(self) -> float:
        return 0.0 if self.cross else 2.0 * self.kv_heads * self.head_width
