"""Linear attention: keys and values are summed first.

φ(Q)·(φ(K)ᵀV) with φ(x) = elu(x) + 1 (Katharopoulos et al. 2020). Each query reads the sums, so cost is linear in length, and
token by token it is a recurrence whose state is the sums:

    Σ_j φ(q)·φ(k_j) v_j  =  φ(q)·Σ_j φ(k_j) v_jᵀ

A column of ones beside v gives the denominator. Causal attention needs the sums of every prefix, computed chunk by chunk:

    keys      ░░░░░░░░▓          ░ before the chunk: through the sums so far
    queries           ▓          ▓ inside the chunk: pair by pair, below the diagonal

Features may come with the logarithm of their size, for kernels that grow exponentially (Performer). Sums are stored relative to
the largest size *so far*, because a maximum over all keys would let the past see the future.
"""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn.attention.attend import fold, unfold
from regard.nn.attention.unpack import DocumentSplitter
from regard.nn.core.context import Context
from regard.nn.core.coords import Coords
from regard.nn.core.mask import Causal, Everything, visible
from regard.nn.core.mixer import MIXERS, Act, Can, Mixer, MixerSpec, Site, check_positions
from regard.nn.core.shape import device_kind, merge_heads, sizes, split_heads, width_of_head
from regard.nn.core.state import State, fixed, moving
from regard.nn.positions.position import Position, PositionSpec
from regard.registry import kind_of
from regard.spec import Count, Heads, spec

CHUNK = 128
"""Causal queries per chunk: longer chunks compute more pairs, shorter ones take more steps."""


@spec
class KernelAttention(MixerSpec):
    """Base of attention by features: a kernel instead of the softmax."""

    heads: Heads
    head_width: Count | None = dataclasses.field(default=None, kw_only=True)
    bias: bool = dataclasses.field(default=True, kw_only=True)
    position: PositionSpec | None = dataclasses.field(default=None, kw_only=True)
    can = Can(rewind=False, positions=frozenset[Act]({"rotate"}))

    def head_shape(self, width: int) -> tuple[int, int]:
        return self.heads, width_of_head(width, self.heads, self.head_width)


@MIXERS.add(also=("linear", "linear_transformer"))
@spec
class LinearAttention(KernelAttention):
    """Attention with the kernel φ(q)·φ(k), φ = elu + 1, as many features as a head is wide.

    It does not rotate: φ is applied number by number, so φ(Rq)·φ(Rk) depends on more than the distance. Rotated features
    (RoFormer, eq. 19) would give weights that may be negative and do not sum to one.
    """

    can = Can(rewind=False, positions=frozenset[Act]())

    def build(self, site: Site) -> LinearAttentionMixer:
        return LinearAttentionMixer(self, site)


@dataclasses.dataclass
class Sums(State):
    """Sums over the current document, divided by exp(`top`), so that they do not grow with its length."""

    top: Tensor = moving()  # (b, h)
    sums: Tensor = moving()  # (b, h, r, e + 1)
    doc: Tensor = moving()  # (b,)


@dataclasses.dataclass
class Summed(State):
    """Sums over a memory, computed once per sentence; with documents, (b, h, documents, r, e + 1)."""

    sums: Tensor | None = fixed(default=None)


class KernelMixer(Mixer):
    """Attention by features; a child says what the features are."""

    features: int
    """Number of features of a key."""

    def __init__(self, spec: KernelAttention, site: Site) -> None:
        super().__init__(site)
        self.heads, self.head_width = h, e = spec.head_shape(site.width)
        self.cross = site.role == "cross"
        self.causal = site.causal and not self.cross
        read = (self.cross and site.memory) or site.width
        self.q = nn.Linear(site.width, h * e, bias=spec.bias)
        self.k, self.v = (nn.Linear(read, h * e, bias=spec.bias) for _ in range(2))
        self.out = nn.Linear(h * e, site.width, bias=spec.bias)
        self.position: Position | None = None
        if spec.position is not None:
            check_positions(spec, site, spec.position.acts, kind_of(type(spec.position)))
            self.position = spec.position.build(site.at("position", heads=h, head_width=e))

    def _features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return features (b, h, n, r) of queries or keys (b, h, n, e), and the logarithm of their size (b, h, n)."""
        raise NotImplementedError

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        sizes(x, "b n d", d=self.site.width)
        q = self._rotate(split_heads(self.q(x), self.heads), ctx)
        with torch.autocast(device_kind(x), enabled=False):  # exponentials need full precision
            qf, _ = self._features(q)
        if self.causal:
            y, state = self._attend_causal(qf, *self._keys(x, x, ctx.at, ctx), ctx, state)
        else:
            y, state = self._attend_all(qf, x, ctx, state)
        y = y[..., :-1] / _safe(y[..., -1:])
        return self.out(self.pass_heads(merge_heads(y.to(x.dtype)), ctx)), state

    def _attend_all(self, q: Tensor, x: Tensor, ctx: Context, state: State | None) -> tuple[Tensor, State | None]:
        """Attend to the sums over all keys, of a memory or of the stream."""
        source = self.read_source(x, ctx)
        keys, values, at = source.keys, source.values, source.at
        looking = ctx.tape.wants(f"{self.site.path}.weights")
        sums = state.sums if isinstance(state, Summed) else None
        if sums is None or looking:
            k, size, v = self._keys(keys, values, at, ctx)
            self._record_weights(q, k, size, at, ctx)
        with torch.autocast(device_kind(x), enabled=False):
            if sums is None:
                if ctx.at.packed and at.packed:
                    apart = DocumentSplitter(at, k.shape[0])
                    k, size, v = apart.split(k), apart.split(size.unsqueeze(-1), -torch.inf).squeeze(-1), apart.split(v)
                sums = total(k, size, v)
            if isinstance(state, Summed):
                state.sums = sums
            ctx.tape.plan(self.site.path, f"linear: {q.shape[-1]} features")
            if sums.dim() == 4:
                return unfold(fold(q, sums.shape[0]) @ sums, q.shape[0]), state
            apart = DocumentSplitter(ctx.at, q.shape[0], sums.shape[2])
            return apart.join(apart.split(q) @ sums), state

    def _attend_causal(
        self, q: Tensor, k: Tensor, size: Tensor, v: Tensor, ctx: Context, state: State | None
    ) -> tuple[Tensor, State | None]:
        """Attend to the keys up to each query, chunk by chunk."""
        b, _, n, r = q.shape
        before = state if isinstance(state, Sums) else self.start(b, n)
        assert isinstance(before, Sums)
        reason = f"linear: prefixes of {r} features"
        if state is None:
            self._record_weights(q, k, size, ctx.at, ctx)
        else:
            reason += "; keys are not remembered, so there are no weights to look at"
        ctx.tape.plan(self.site.path, reason)
        out = []
        with torch.autocast(device_kind(q), enabled=False):
            doc = _fill_documents(ctx.at, before.doc).unsqueeze(1)
            parts = (torch.split(t, CHUNK, 2) for t in (q, k, size, v, doc))
            for q_part, k_part, size_part, v_part, doc_part in zip(*parts, strict=True):
                y, before = chunk(q_part, k_part, size_part, v_part, doc_part.squeeze(1), before)
                out.append(y)
        return torch.cat(out, 2), None if state is None else before

    def _rotate(self, x: Tensor, ctx: Context) -> Tensor:
        position = None if self.cross else self.position or ctx.position
        if position is None or "rotate" not in position.acts:
            return x
        return position.rotate(x, ctx.once((position, "table", ctx.at), lambda: position.table(ctx.at)))

    def _keys(self, keys: Tensor, values: Tensor, at: Coords, ctx: Context) -> tuple[Tensor, Tensor, Tensor]:
        """Return features of the keys, their sizes (that of nothing for padding), values and a column of ones."""
        k = self._rotate(split_heads(self.k(keys), self.heads), ctx)
        v = split_heads(self.v(values), self.heads)
        with torch.autocast(device_kind(k), enabled=False):
            f, size = self._features(k)
            size = size.masked_fill(~at.kept.unsqueeze(1), -torch.inf) if at.padded else size
            return f, size, F.pad(v.to(f.dtype), (0, 1), value=1.0)

    def _record_weights(self, q: Tensor, k: Tensor, size: Tensor, at: Coords, ctx: Context) -> None:
        """Record the weights that the estimate amounts to, for the requested heads and rows."""
        name, tape = f"{self.site.path}.weights", ctx.tape
        if not tape.wants(name):
            return
        keep = visible(Causal() if self.causal else Everything(), ctx.at, at)
        rows, heads = tape.choose(name, heads=q.shape[1], rows=q.shape[2])
        if heads is not None:
            q, k, size = (t[:, heads] for t in (q, k, size))
        if rows is not None:
            q = q[:, :, rows]
            keep = keep if keep is None or keep.shape[1] == 1 else keep[:, rows]
        pairs, _ = near(fold(q, k.shape[0]), k, size, None if keep is None else keep.unsqueeze(1))
        tape.keep(name, unfold(pairs / _safe(pairs.sum(-1, keepdim=True)), q.shape[0]), chosen=True)

    def start(self, rows: int, capacity: int) -> State:
        if self.cross:
            return Summed()
        r, e = self.features, self.head_width
        like = self.q.weight.new_zeros(rows, dtype=torch.promote_types(self.q.weight.dtype, torch.float32))
        top = like.new_full((rows, self.heads), _lowest(like))
        doc = torch.zeros(rows, dtype=torch.long, device=like.device)
        return Sums(top, like.new_zeros(rows, self.heads, r, e + 1), doc)

    def flops(self, n: int, m: int) -> float:
        """Features and products with the sums, for a query and for a key; a memory's keys are shared by `n` queries."""
        r, e = self.features, self.head_width
        one_side, near = 4.0 * r * e * self.heads, 2.0 * min(CHUNK, n) * (r + e) * self.heads
        if not self.cross:
            return super().flops(n, m) + 2 * one_side + (near if self.causal else 0.0)
        per_key = 2.0 * (self.k.weight.numel() + self.v.weight.numel())
        return super().flops(n, m) + per_key * (m / n - 1) + one_side * (1 + m / n)

    def state_numbers(self, n: int) -> float:
        r, e = self.features, self.head_width
        return 0.0 if self.cross else float(self.heads * r * (e + 1))


class LinearAttentionMixer(KernelMixer):
    def __init__(self, spec: LinearAttention, site: Site) -> None:
        super().__init__(spec, site)
        self.features = self.head_width

    def _features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        return F.elu(x) + 1, torch.zeros_like(x[..., 0])


def total(k: Tensor, size: Tensor, v: Tensor) -> Tensor:
    """Compute Σ_j φ(k_j) v_jᵀ up to a factor, (…, r, e + 1)."""
    top = size.detach().amax(-1, keepdim=True).clamp(min=_lowest(size))
    return k.mT @ (v * (size - top).exp().unsqueeze(-1))


def near(
    q: Tensor, k: Tensor, size: Tensor, keep: Tensor | None, before: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return φ(q)·φ(k) of all pairs (b, h, n, m), divided by exp of the largest size each query sees, and that size."""
    seen = size.unsqueeze(-2)
    seen = seen if keep is None else seen.masked_fill(~keep, -torch.inf)
    top = seen.detach().amax(-1, keepdim=True)
    top = (top if before is None else torch.maximum(top, before)).clamp(min=_lowest(size))
    return q @ k.mT * (seen - top).exp(), top


def chunk(q: Tensor, k: Tensor, size: Tensor, v: Tensor, doc: Tensor, past: Sums) -> tuple[Tensor, Sums]:
    """Return numerators and denominators of queries that follow `past`, and the sums updated with their keys."""
    n = q.shape[2]
    before = past.top.unsqueeze(-1).masked_fill((doc != past.doc.unsqueeze(1)).unsqueeze(1), -torch.inf)
    keep = (doc.unsqueeze(2) == doc.unsqueeze(1)) & torch.ones(n, n, dtype=torch.bool, device=q.device).tril()
    pairs, top = near(q, k, size, keep.unsqueeze(1), before.unsqueeze(-1))
    y = pairs @ v + (q @ past.sums) * (before.unsqueeze(-1) - top).exp()
    last, newest = top[:, :, -1], doc[:, -1:]  # the last query has seen its whole document
    grown = (size.masked_fill((doc != newest).unsqueeze(1), -torch.inf) - last).exp()
    faded = (before[:, :, -1:] - last).exp()
    return y, Sums(last.squeeze(-1), past.sums * faded.unsqueeze(-1) + k.mT @ (v * grown.unsqueeze(-1)), newest[:, 0])


def _fill_documents(at: Coords, before: Tensor) -> Tensor:
    """Return the document of every token, (b, n); padding belongs to the one before it."""
    rows = before.shape[0]
    if at.doc is None:
        return torch.zeros_like(at.pos).expand(rows, -1)
    column = torch.arange(at.n, device=at.pos.device).masked_fill(~at.kept, -1).cummax(1).values.expand(rows, -1)
    doc = at.doc.expand(rows, -1).gather(1, column.clamp(min=0))
    return torch.where(column >= 0, doc, before.unsqueeze(1))


def _safe(total: Tensor) -> Tensor:
    """Return a sum of positive numbers as a divisor: one if no key is visible."""
    return torch.where(total > torch.finfo(total.dtype).tiny, total, 1.0)


def _lowest(like: Tensor) -> float:
    """Return the size of nothing; it is finite, so differences are finite too."""
    return torch.finfo(like.dtype).min / 2
