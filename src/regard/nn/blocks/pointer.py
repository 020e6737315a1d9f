"""The pointer-generator: a head that copies from the source.

See et al. 2017. At each step the head writes a token of the vocabulary, or copies one that the encoder has read:

    P(w) = p_gen · P_vocab(w) + (1 − p_gen) · Σ a_i over the source positions i that hold w            eq. 9
    p_gen = σ(w_h·h* + w_s·s + w_x·x + b)                                                              eq. 8

s is the stream, x the embedding of the token it has read, a the head's own attention to the source and h* the mean of the
source under a. With coverage, attention also sees how much attention each source position has received before (c, eq. 10 and
11), and looking at the same place twice costs Σ min(a_i, c_i) (eq. 12).

The attention is the head's own, so it works with any decoder. `score="additive"` is that of the paper; `dot` (the default) is
scaled dot-product attention, which needs no (n, m, d) tensor. Source and target share a vocabulary: with subwords or bytes any
name can be copied piece by piece, so there are no ids outside the vocabulary, and an unknown token stays unknown.

Loss and search take rows and positions out of the stream as they like, so all that the head knows of the source travels in
the stream as further columns, in float32 or wider (which is exact for the ids of any vocabulary below 2²⁴ tokens):

    stream (d) │ gate (1) │ attention to the source (m) │ tokens of the source (m)
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from regard.errors import ShapeError, StateError
from regard.nn.attention.attend import masked_softmax
from regard.nn.attention.plan import Needs, plan
from regard.nn.blocks.head import HEADS, HeadSpec, Vocab, VocabHead, table_refusals
from regard.nn.core.context import Context, Memory
from regard.nn.core.coords import Coords
from regard.nn.core.mask import Everything
from regard.nn.core.mixer import Site
from regard.nn.core.state import State, fixed, join_padded, moving
from regard.nn.layers.loss import IGNORE
from regard.spec import spec

GATE = 1
"""Columns of the gate."""
OPEN = 100.0
"""A gate that copies nothing: its sigmoid is one."""


@HEADS.add
@spec
class Pointer(HeadSpec):
    """A score for every token, which may also be copied from the source (See et al. 2017)."""

    tied: bool = True
    bias: bool = False
    scale: float = 1.0
    score: Literal["dot", "additive"] = "dot"
    """Scoring of attention to the source; `additive` is that of the paper."""
    coverage: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """The weight of the coverage loss (1 in the paper); null: attention does not see where it has been."""
    reads_source: ClassVar[bool] = True

    def build(self, site: Site, vocab: int) -> PointerHead:
        return PointerHead(self, site, vocab)

    def refusals(self, width: int, table: int) -> list[str]:
        return table_refusals(self.tied, width, table)

    def shares(self, other: HeadSpec | None) -> tuple[str, ...]:
        if isinstance(other, Pointer) and self.score == other.score:
            return "weight", "bias", "query", "key", "gate", "v", "cover"
        return ("weight", "bias") if isinstance(other, Vocab | Pointer) else ()


@dataclasses.dataclass
class PointerState(State):
    """The keys of the source, and the attention that each of its positions has received."""

    keys: Tensor | None = fixed(default=None)
    coverage: Tensor | None = moving(default=None)

    def join(self, other: Self) -> Self:
        if self.keys is None or other.keys is None:
            raise StateError("PointerState has read nothing; read a token with each before they are joined")
        seen = (self.coverage, other.coverage)
        return dataclasses.replace(
            self,
            keys=join_padded(self.keys, other.keys, 1),
            coverage=None if seen[0] is None or seen[1] is None else join_padded(seen[0], seen[1], 1),
        )


class PointerHead(VocabHead):
    def __init__(self, spec: Pointer, site: Site, vocab: int) -> None:
        super().__init__(Vocab(spec.tied, spec.bias, spec.scale), site, vocab)
        self.path, self.width, self.weight_of_coverage = site.path, site.width, spec.coverage
        self.query = nn.Linear(site.width, site.width)
        self.key = nn.Linear(site.memory, site.width, bias=False)
        self.v = nn.Linear(site.width, 1, bias=False) if spec.score == "additive" else None
        inner = site.width if spec.score == "additive" else 1
        self.cover = None if spec.coverage is None else nn.Parameter(torch.zeros(inner))
        self.gate = nn.Linear(site.memory + site.width + site.embedded, 1)

    def initialize(self) -> None:
        """Coverage starts without an influence on attention."""
        if self.cover is not None:
            self.cover.zero_()

    def start(self) -> PointerState:
        return PointerState()

    # ------------------------------------------------------------------------------------------------ at the source

    def read_source(self, stream: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        """Add the columns of the gate, of attention to the source, and of its tokens."""
        memory, embedded = ctx.memory, ctx.first
        if memory is None or memory.ids is None or embedded is None:
            raise StateError(f"{self.path} copies tokens of the source; give it the memory that `encode` returns")
        known = state if isinstance(state, PointerState) else PointerState()
        keys = self.key(memory.keys) if known.keys is None else known.keys
        weights, coverage = self._attend(self.query(stream), keys, known.coverage, ctx.at, memory, ctx)
        weights = ctx.tape.at(f"{self.path}.copy", weights)
        beam = stream.shape[0] // memory.keys.shape[0]
        values = _repeat(memory.values, beam).to(weights.dtype)
        mean = (weights @ values).to(stream.dtype)
        gate = self.gate(torch.cat([mean, stream, embedded.to(stream.dtype)], -1)).to(weights.dtype)
        gate = gate.masked_fill((weights == 0).all(-1, keepdim=True), OPEN)  # nothing there to copy
        gate = ctx.tape.at(f"{self.path}.gate", gate)
        ids = _repeat(memory.ids.masked_fill(~memory.at.kept, 0), beam)
        ids = ids.unsqueeze(1).expand(-1, stream.shape[1], -1)
        out = torch.cat([stream.to(weights.dtype), gate, weights, ids.to(weights.dtype)], -1)
        return out, None if state is None else PointerState(keys, coverage)

    def _attend(
        self, query: Tensor, keys: Tensor, coverage: Tensor | None, at: Coords, memory: Memory, ctx: Context
    ) -> tuple[Tensor, Tensor | None]:
        """Return attention (b, n, m) to the source, and its coverage (b, m) after the last token."""
        sentences, m, _ = keys.shape
        rows, n, d = query.shape
        if sentences == 0 or rows % sentences:
            raise StateError(f"{rows} hypotheses cannot be divided among the {sentences} sentences of a memory")
        beam = rows // sentences
        keep = ctx.once((self, "mask", at, memory.at), lambda: _visible(at, memory.at, rows))
        query = query.view(sentences, beam, n, d)
        if self.cover is None:
            return _normalize(self._scores(query.flatten(1, 2), keys, None).view(rows, n, m), keep), None
        there = at.kept.expand(rows, -1).unsqueeze(-1)
        seen = query.new_zeros(rows, m, dtype=_wide(query)) if coverage is None else coverage
        out, cost = [], seen.new_zeros(())
        for t in range(n):
            scores = self._scores(query[:, :, t], keys, seen.view(sentences, beam, m))
            mask = None if keep is None else keep[:, min(t, keep.shape[1] - 1)].unsqueeze(1)
            weights = _normalize(scores.view(rows, 1, m), mask).squeeze(1)
            counted = weights * there[:, t]
            cost = cost + torch.minimum(counted, seen).sum()
            seen = seen + counted
            out.append(weights)
        if self.weight_of_coverage and self.training:
            ctx.tape.loss("coverage", self.weight_of_coverage * cost / there.sum().clamp(min=1))
        return torch.stack(out, 1), seen

    def _scores(self, query: Tensor, keys: Tensor, coverage: Tensor | None) -> Tensor:
        """Score keys (s, m, d) for queries (s, k, d) with what they have covered (s, k, m)."""
        if self.v is None:
            scores: Tensor = query @ keys.mT * query.shape[-1] ** -0.5
            return scores if coverage is None or self.cover is None else scores + self.cover * coverage
        inner = query.unsqueeze(2) + keys.unsqueeze(1)
        if coverage is not None and self.cover is not None:
            inner = inner + coverage.to(inner.dtype).unsqueeze(-1) * self.cover
        out: Tensor = self.v(inner.tanh()).squeeze(-1)
        return out

    # ------------------------------------------------------------------------------------------------ to the output

    def forward(self, x: Tensor, table: Tensor | None, at: Coords | None = None) -> Tensor:
        """Return log P of every token. A stream without the columns of a source is read by the vocabulary alone."""
        if x.shape[-1] == self.width:
            return super().forward(x, table, at)
        stream, gate, weights, ids = self._split(x)
        own = F.logsigmoid(gate) + self._vocabulary(stream, table).log_softmax(-1)
        copied = torch.zeros_like(own).scatter_add(-1, ids, weights.to(own.dtype))
        return _mix(own, gate, copied)

    def loss(self, x: Tensor, table: Tensor | None, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        """Return the loss of the mixed distribution; only the product with the table is as wide as the vocabulary."""
        if x.shape[-1] == self.width:
            return super().loss(x, table, target, smoothing)
        wanted = target.flatten()
        there = wanted != IGNORE
        wanted = wanted[there].unsqueeze(1)
        stream, gate, weights, ids = (part[there] for part in self._split(x.flatten(0, -2)))
        logits = self._vocabulary(stream, table)
        shift = F.logsigmoid(gate) - logits.logsumexp(-1, keepdim=True)  # logits + shift = log(p_gen · P_vocab)
        copied = (weights * (ids == wanted)).sum(-1, keepdim=True)
        plain = -_mix(logits.gather(1, wanted) + shift, gate, copied).sum()
        if not smoothing:
            return plain, plain.detach()
        even = (logits.mean(-1, keepdim=True) + shift).sum() + self._added(logits, shift, gate, weights, ids)
        return (1 - smoothing) * plain - smoothing * even, plain.detach()

    def _added(self, logits: Tensor, shift: Tensor, gate: Tensor, weights: Tensor, ids: Tensor) -> Tensor:
        """Return what copying adds to the mean of log P over the vocabulary, summed over rows; each word counts once."""
        there = weights > 0
        none = torch.zeros_like(logits)
        copied = none.scatter_add(1, ids, weights).gather(1, ids)
        times = none.scatter_add(1, ids, there.to(none.dtype)).gather(1, ids).clamp(min=1)
        own = logits.gather(1, ids) + shift
        return ((_mix(own, gate, copied) - own) * there / times).sum() / logits.shape[-1]

    def _vocabulary(self, stream: Tensor, table: Tensor | None) -> Tensor:
        weight = self._weight(table)
        logits = F.linear(self.read(stream.to(weight.dtype)), weight, self.bias)
        return logits.to(_wide(logits))

    def _split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the stream, the gate, the attention and the tokens of the source."""
        m, odd = divmod(x.shape[-1] - self.width - GATE, 2)
        if m < 0 or odd:
            raise ShapeError(
                f"{self.path} reads streams of width {self.width}, or with the columns of a source, got {x.shape[-1]}"
            )
        stream, gate, weights, ids = torch.split(x, [self.width, GATE, m, m], -1)
        return stream, gate, weights, ids.long()

    def flops(self, n: int) -> float:
        """The keys of a source as long as the output, one per token, and attention to it."""
        return super().flops(n) + 4.0 * n * self.width


def _mix(own: Tensor, gate: Tensor, copied: Tensor) -> Tensor:
    """log(e^own + (1 − p_gen) · copied), with finite gradients where nothing is copied."""
    least = torch.finfo(copied.dtype).tiny
    other = F.logsigmoid(-gate) + copied.clamp(min=least).log()
    return torch.logaddexp(own, torch.where(copied > 0, other, -torch.inf))


def _normalize(scores: Tensor, keep: Tensor | None) -> Tensor:
    """Softmax over the visible source, in float32 or wider; zeros where there is none."""
    weights = masked_softmax(scores.to(_wide(scores)), keep)
    return weights if keep is None else weights * keep


def _visible(at: Coords, source: Coords, rows: int) -> Tensor | None:
    """The source positions that each token may look at, (b | 1, n | 1, m); None: all."""
    keep = plan(Everything(), at, source, Needs(weights=True)).keep
    if keep is None:
        return None
    keep = keep.squeeze(1)
    return keep if keep.shape[0] in (1, rows) else _repeat(keep, rows // keep.shape[0])


def _repeat(t: Tensor, beam: int) -> Tensor:
    """Return one row for each hypothesis of a sentence."""
    return t if beam == 1 else t.repeat_interleave(beam, 0)


def _wide(t: Tensor) -> torch.dtype:
    return torch.promote_types(t.dtype, torch.float32)
