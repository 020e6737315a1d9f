"""Linformer: keys and values projected along the length.

Wang et al. 2020.

    softmax(Q·(E·K)ᵀ/√e)·(F·V)        E and F are learned, (rank, length): n tokens become `rank` rows

A row mixes all tokens, so it cannot be causal; a column of E belongs to a position, so the length is fixed. `sharing` of
E and F:

    none        every head has its own          key_value   the heads share one matrix, which is E and F
    head        the heads share E, and F        layer       and so do all layers: the stack owns it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn.attention.attend import attend, fold, unfold
from regard.nn.attention.plan import Needs, plan
from regard.nn.core.context import Context
from regard.nn.core.coords import Coords
from regard.nn.core.mask import Everything
from regard.nn.core.mixer import MIXERS, Act, Can, Mixer, MixerSpec, Site
from regard.nn.core.shape import merge_heads, sizes, split_heads, width_of_head
from regard.nn.core.state import State
from regard.nn.mixers.full import CrossKeyValues
from regard.spec import Count, Heads, Share, spec


@MIXERS.add
@spec
class Linformer(MixerSpec):
    """Softmax attention over `rank` learned mixtures of the keys; a tape records the weights as `slots`."""

    heads: Heads
    rank: Count = 128
    sharing: Literal["none", "head", "key_value", "layer"] = "head"
    head_width: Count | None = None
    bias: bool = True
    dropout: Share = 0.0
    can = Can(causal=False, rewind=False, weights=False, packed=False, length="fixed", positions=frozenset[Act]())

    def build(self, site: Site) -> LinformerMixer:
        return LinformerMixer(self, site)

    def head_shape(self, width: int) -> tuple[int, int]:
        return self.heads, width_of_head(width, self.heads, self.head_width)

    def shares(self, site: Site) -> Mapping[str, Callable[[], nn.Module]]:
        return {self.shared: lambda: LengthProjection(self.rank, site.length)} if self.sharing == "layer" else {}

    @property
    def shared(self) -> str:
        return f"linformer_{self.rank}"


class LengthProjection(nn.Module):
    """Projects n tokens to `rank` rows, with one matrix for all heads or one for each of `heads`."""

    def __init__(self, rank: int, length: int, heads: int = 1) -> None:
        super().__init__()
        self.heads = heads
        self.weight = nn.Parameter(torch.empty(heads * rank, length))

    def forward(self, x: Tensor, at: Coords) -> Tensor:
        """Project (b, h, n, e) to (b, h, rank, e); padding has no weight."""
        x = x.masked_fill(~at.kept[:, None, :, None], 0.0) if at.padded else x
        if at.first is not None:
            by_place = self.weight[:, at.first : at.first + at.n].unsqueeze(0)
        else:
            by_place = F.embedding(at.pos.clamp(min=0), self.weight.t()).mT
        b, h, n, e = x.shape
        if self.heads > 1:
            return by_place.view(by_place.shape[0], h, -1, n) @ x
        rows = by_place @ x.transpose(1, 2).reshape(b, n, h * e)  # one product for all heads
        return split_heads(rows, h)


class LinformerMixer(Mixer):
    def __init__(self, spec: Linformer, site: Site) -> None:
        super().__init__(site)
        self.heads, self.head_width = h, e = spec.head_shape(site.width)
        self.rank, self.dropout = spec.rank, spec.dropout
        self.cross = site.role == "cross"
        read = (self.cross and site.memory) or site.width
        self.q = nn.Linear(site.width, h * e, bias=spec.bias)
        self.k, self.v = (nn.Linear(read, h * e, bias=spec.bias) for _ in range(2))
        self.out = nn.Linear(h * e, site.width, bias=spec.bias)
        own = h if spec.sharing == "none" else 1
        self.shared = spec.shared
        self.squeeze_k = LengthProjection(spec.rank, site.length, own) if spec.sharing != "layer" else None
        self.squeeze_v = LengthProjection(spec.rank, site.length, own) if spec.sharing in ("none", "head") else None

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        sizes(x, "b n d", d=self.site.width)
        if isinstance(state, CrossKeyValues) and state.k is not None and state.v is not None:
            k, v = state.k, state.v
        else:
            k, v = self._rows(x, ctx)
        if isinstance(state, CrossKeyValues):
            state.k, state.v = k, v
        q = split_heads(self.q(x), self.heads)
        name = f"{self.site.path}.slots"
        needs = Needs(weights=ctx.tape.wants(name), dropout=self.training and self.dropout > 0, dtype=q.dtype)
        rows = ctx.once(("rows", self.rank), lambda: Coords.span(self.rank))
        how = ctx.once((Everything(), ctx.at, rows, needs), lambda: plan(Everything(), ctx.at, rows, needs))
        out, weights = attend(
            fold(q, k.shape[0]), k, v, how, scale=self.head_width**-0.5, dropout=self.dropout if self.training else 0.0
        )
        ctx.tape.plan(self.site.path, how.reason)
        if weights is not None:
            ctx.tape.keep(name, unfold(weights, q.shape[0]))
        return self.out(self.pass_heads(merge_heads(unfold(out, q.shape[0])), ctx)), state

    def _rows(self, x: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
        """Return the projected keys and values, of a memory or of the stream."""
        source = self.read_source(x, ctx)
        squeeze_k = ctx.shared[self.shared] if self.squeeze_k is None else self.squeeze_k
        squeeze_v = squeeze_k if self.squeeze_v is None else self.squeeze_v
        k, v = split_heads(self.k(source.keys), self.heads), split_heads(self.v(source.values), self.heads)
        return squeeze_k(k, source.at), squeeze_v(v, source.at)

    def start(self, rows: int, capacity: int) -> State | None:
        return CrossKeyValues() if self.cross else super().start(rows, capacity)

    def flops(self, n: int, m: int) -> float:
        """Two projections per key, and two products with the rows per query."""
        seen = m / n if self.cross else 1.0
        per_key = 2.0 * (self.k.weight.numel() + self.v.weight.numel())
        each = 4.0 * self.rank * self.heads * self.head_width
        return super().flops(n, m) + per_key * (seen - 1) + each * (1 + seen)
