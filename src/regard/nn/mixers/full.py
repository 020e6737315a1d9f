"""Full attention: every position attends to every other.

Vaswani et al. 2017, §3.2. Scores are divided by √d_k, the root of the width of a head, where d_k = d_model / heads.

x ─┬─ q ─ norm? ─ rotate ─┐
   ├─ k ─ norm? ─ rotate ─┼─ softmax(q·kᵀ·scale + bias)·v ─ out
   └─ v ──────────────────┘        keys and values may have fewer heads (grouped), or come from a memory (cross)

Positions whose codes are projected by each layer (Transformer-XL) use the projection `r`.
"""

from __future__ import annotations

import dataclasses
from typing import Self

import torch
from torch import Tensor, nn

from regard.errors import SpecError, StateError
from regard.nn.attention.attend import attend, fold, unfold
from regard.nn.attention.plan import Needs, plan
from regard.nn.attention.tiled import TiledProblem, compute_weights
from regard.nn.core.context import Context, Memory
from regard.nn.core.coords import Coords
from regard.nn.core.mask import AllOf, Causal, Everything, Rule
from regard.nn.core.mixer import MIXERS, Can, Mixer, Site, check_positions
from regard.nn.core.shape import merge_heads, sizes, split_heads
from regard.nn.core.state import KeyValues, State, fixed, join_padded
from regard.nn.mixers.softmax import SoftmaxAttention
from regard.nn.positions.position import Position
from regard.registry import kind_of
from regard.spec import spec


@MIXERS.add(also=("attention", "softmax", "mha", "sdpa"))
@spec
class Full(SoftmaxAttention):
    """Softmax attention over all positions, or over those a mask rule allows."""

    mask: Rule | None = None
    can = Can()

    def build(self, site: Site) -> FullMixer:
        return FullMixer(self, site, self.mask)


@dataclasses.dataclass
class CrossKeyValues(State):
    """Keys and values of a memory, projected once per sentence."""

    k: Tensor | None = fixed(default=None)
    v: Tensor | None = fixed(default=None)

    def join(self, other: Self) -> Self:
        if self.k is None or self.v is None or other.k is None or other.v is None:
            return super().join(other)
        return dataclasses.replace(self, k=join_padded(self.k, other.k, 2), v=join_padded(self.v, other.v, 2))


class FullMixer(Mixer):
    def __init__(self, spec: SoftmaxAttention, site: Site, mask: Rule | None = None) -> None:
        super().__init__(site)
        self.heads, self.kv_heads = spec.heads, spec.kv_heads or spec.heads
        _, e = spec.head_shape(site.width)
        self.head_width = e
        self.cross = site.role == "cross"
        read = (self.cross and site.memory) or site.width
        bias = bool(spec.bias)
        self.q = nn.Linear(site.width, self.heads * e, bias=bias)
        self.k = nn.Linear(read, self.kv_heads * e, bias=bias)
        self.v = nn.Linear(read, self.kv_heads * e, bias=bias)
        self.out = nn.Linear(self.heads * e, site.width, bias=spec.bias is True)
        self.q_norm, self.k_norm = (spec.qk_norm.build(e) if spec.qk_norm else None for _ in range(2))
        self.scale = e**-0.5 if spec.scale is None else spec.scale
        self.dropout = spec.dropout
        self.position: Position | None = None
        if spec.position is not None:
            check_positions(spec, site, spec.position.acts, kind_of(type(spec.position)))
            here = site.at("position", heads=self.heads, head_width=e)
            self.position = spec.position.build(here)
        code = None if self.cross else spec.position or site.position
        self.r = nn.Linear(site.width, self.heads * e, bias=False) if code is not None and code.projects else None
        if self.cross and mask is not None:
            raise SpecError(f"a mask rule reads the positions of one sequence; {site.path} spans two: leave it out")
        rules = [r for r in (Causal() if site.causal and not self.cross else None, mask) if r is not None]
        self.rule: Rule = Everything() if not rules else rules[0] if len(rules) == 1 else AllOf(tuple(rules))

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        sizes(x, "b n d", d=self.site.width)
        if self.cross:
            return self._attend_across(x, ctx, state)
        position = self.position or ctx.position
        q, k, v = self._query(x), self._key(x), split_heads(self.v(x), self.kv_heads)
        q, k = (self._rotate(t, ctx, ctx.at, position) for t in (q, k))
        at = ctx.at
        if state is not None:
            assert isinstance(state, KeyValues)
            at = ctx.extend_coords(state.at)
            k, v = state.add(k, v, at)
        out, _ = self._attend(q, k, v, ctx, at, position)
        return self.out(self.pass_heads(merge_heads(out), ctx)), state

    def _attend_across(self, x: Tensor, ctx: Context, state: State | None) -> tuple[Tensor, State | None]:
        """Cross-attention; the hypotheses of a sentence share its keys."""
        memory = self.read_source(x, ctx)
        k, v = self.project_memory(memory, state)
        if k.shape[0] != memory.keys.shape[0]:
            raise StateError(
                f"{self.site.path} remembers {k.shape[0]} sentences and was given a memory of {memory.keys.shape[0]}; "
                "select the memory together with the state"
            )
        out, _ = self._attend(self._query(x), k, v, ctx, memory.at, None)
        return self.out(self.pass_heads(merge_heads(out), ctx)), state

    def project_memory(self, memory: Memory, state: State | None) -> tuple[Tensor, Tensor]:
        """Project a memory to keys and values, once per sentence if there is a state to store them."""
        if isinstance(state, CrossKeyValues) and state.k is not None and state.v is not None:
            return state.k, state.v
        k, v = self._key(memory.keys), split_heads(self.v(memory.values), self.kv_heads)
        if isinstance(state, CrossKeyValues):
            state.k, state.v = k, v = k.contiguous(), v.contiguous()  # read at every step, so laid out once
        return k, v

    def _query(self, x: Tensor) -> Tensor:
        q = split_heads(self.q(x), self.heads)
        return q if self.q_norm is None else self.q_norm(q)

    def _key(self, x: Tensor) -> Tensor:
        k = split_heads(self.k(x), self.kv_heads)
        return k if self.k_norm is None else self.k_norm(k)

    def _rotate(self, x: Tensor, ctx: Context, at: Coords, position: Position | None) -> Tensor:
        """Rotate queries or keys at `at`, if the position does that."""
        if position is None or "rotate" not in position.acts:
            return x
        return position.rotate(x, ctx.once((position, "table", at), lambda: position.table(at)))

    def _attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        ctx: Context,
        at: Coords,
        position: Position | None,
        weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from the current tokens to keys at `at`; also returns the weights if they are requested."""
        p, bias, name = None, None, f"{self.site.path}.weights"
        some = not weights and q.shape[0] == k.shape[0] and ctx.tape.wants_rows(name)
        content = position is not None and "content" in position.acts
        if position is not None and position.acts & {"bias", "content"}:
            p = ctx.once((position, "pairs", ctx.at, at), lambda: position.prepare(ctx.at, at))
            p = p if self.r is None else position.project(p, self.r)
            bias = position.bias(p)
        needs = Needs(
            weights=weights or (ctx.tape.wants(name) and not some),
            content=content,
            bias_grad=bias is not None and bias.requires_grad and torch.is_grad_enabled(),
            dropout=self.training and self.dropout > 0,
            dtype=q.dtype,
        )
        how = ctx.once((self.rule, ctx.at, at, needs), lambda: plan(self.rule, ctx.at, at, needs))
        rows, sentences = q.shape[0], k.shape[0]

        def pass_weights(seen: Tensor) -> Tensor:
            return fold(ctx.tape.at(name, unfold(seen, rows)), sentences)

        out, seen = attend(
            fold(q, sentences), k, v, how, scale=self.scale, bias=bias,
            content=(position, p) if position is not None and content else None,
            dropout=self.dropout if self.training else 0.0, edit=pass_weights,
        )  # fmt: skip
        ctx.tape.plan(self.site.path, how.reason)
        if some and seen is None:
            self._record_rows(q, k, ctx, at, position)
        return unfold(out, rows), None if seen is None else unfold(seen, rows)

    def _record_rows(self, q: Tensor, k: Tensor, ctx: Context, at: Coords, position: Position | None) -> None:
        """Record the exact weights of the rows and heads that a tape asks for; no other is computed."""
        acts = position is not None and bool(position.acts & {"bias", "content"})
        problem = TiledProblem(self.rule, ctx.at, at, self.scale, position if acts else None, self.r if acts else None)
        name = f"{self.site.path}.weights"
        chosen = ctx.tape.choose(name, heads=q.shape[1], rows=q.shape[2])
        ctx.tape.keep(name, compute_weights(q, k, problem, *chosen), chosen=True)

    def start(self, rows: int, capacity: int) -> State:
        if self.cross:
            return CrossKeyValues()
        return KeyValues.empty(self.k.weight, rows, self.kv_heads, self.head_width, capacity)

    def flops(self, n: int, m: int) -> float:
        """The keys and values of a memory are computed once for all `n` tokens that attend to it."""
        seen = m if self.cross else n / 2 if isinstance(self.rule, Causal) else n
        per_key = 2.0 * (self.k.weight.numel() + self.v.weight.numel())
        maps = super().flops(n, m) + (per_key * (m / n - 1) if self.cross else 0.0)
        return maps + 4.0 * seen * self.heads * self.head_width + self._by_distance(n)

    def _by_distance(self, distances: float) -> float:
        """FLOPs of the distance terms of a query, if there are any."""
        return 0.0 if self.r is None else 2.0 * distances * self.heads * self.head_width

    def state_numbers(self, n: int) -> float:
        return 0.0 if self.cross else 2.0 * self.kv_heads * self.head_width * n
