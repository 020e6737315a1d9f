"""Heads: from the stream to logits and loss.

Vocab     a score for every token of the vocabulary            language models, translation
Pointer   the same, or a copy of a source token (pointer.py)   summaries, names in translations
Masked    the same, after one more layer of its own            BERT
Classes   a score for every class, of each token or of a row   classifiers, BERT's next sentence, ViT
Vector    one vector per row, no scores                        sentence embeddings, BERT's pooler
Bernoulli a score for every key, each of which sounds or not   piano rolls
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import ShapeError, UnknownName
from regard.nn.core.context import Context
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import Site
from regard.nn.core.part import Part
from regard.nn.core.state import State
from regard.nn.layers.dropout import Dropout
from regard.nn.layers.feedforward import ACTIVATIONS
from regard.nn.layers.loss import smoothed_loss
from regard.nn.layers.norm import LayerNorm, NormSpec
from regard.registry import Registry
from regard.spec import Count, Share, Spec, spec

HEADS: Registry[type[HeadSpec]] = Registry("head")


class HeadSpec(Spec):
    """Turns the stream into outputs."""

    registry = HEADS
    reads_source: ClassVar[bool] = False
    """True if it reads what the encoder has read (`Head.read_source`)."""

    def build(self, site: Site, vocab: int) -> Head:
        raise NotImplementedError

    def refusals(self, width: int, table: int) -> list[str]:
        """List what it cannot do with a stream of this width and an embedding table of that width (0: no table)."""
        return []

    def shares(self, other: HeadSpec | None) -> tuple[str, ...]:
        """Return the names of parts that have the same meaning in another head, and can be initialized from it."""
        return ()


class Head(Part):
    """`(x, table, at) -> logits`, where `table` is the embedding's weight for a head that shares it.

    `at` holds the coordinates of the tokens, which only a pooling head needs.
    """

    def forward(self, x: Tensor, table: Tensor | None, at: Coords | None = None) -> Tensor:
        raise NotImplementedError

    def read_source(self, stream: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        """Add what the head reads of the source to the stream, as columns, given what it remembers of earlier tokens.

        Only called for a head with `reads_source`; `ctx.first` is the embedding of the tokens.
        """
        raise NotImplementedError

    def start(self) -> State:
        """Return what the head remembers before the first token; only called for a head with `reads_source`."""
        raise NotImplementedError

    def flops(self, n: int) -> float:
        """FLOPs of the forward pass per token, among `n` tokens; by default those of its linear layers."""
        return sum(2.0 * part.weight.numel() for part in self.modules() if isinstance(part, nn.Linear))

    def loss(self, x: Tensor, table: Tensor | None, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        """Return the summed loss of the stream (b, n, d) with targets (b, n), and the plain likelihood part of it."""
        raise NotImplementedError

    def score(self, x: Tensor, table: Tensor | None, ids: Tensor) -> Tensor:
        """Return the scores of some outputs alone: of x (…, d) and their ids (…, k), the logits (…, k)."""
        return self(x, table).gather(-1, ids)  # type: ignore[no-any-return]


def table_refusals(tied: bool, width: int, table: int) -> list[str]:
    """List what a head over a vocabulary lacks, given the widths of the stream and of the embedding table."""
    if table == 0:
        return ["a head over a vocabulary needs a token embedding, and this model has none; use head.kind: classes"]
    if not tied or width == table:
        return []
    return [
        f"a tied head needs a stream as wide as the embedding ({table}), and this one is {width} wide; set head.tied: false"
    ]


@HEADS.add
@spec
class Vocab(HeadSpec):
    """A score for every token. `tied` uses the embedding's own matrix; `scale` multiplies the stream first (T5)."""

    tied: bool = True
    bias: bool = False
    scale: float = 1.0

    def build(self, site: Site, vocab: int) -> VocabHead:
        return VocabHead(self, site, vocab)

    def refusals(self, width: int, table: int) -> list[str]:
        return table_refusals(self.tied, width, table)

    def shares(self, other: HeadSpec | None) -> tuple[str, ...]:
        return ("weight", "bias") if isinstance(other, Vocab) or (other is not None and other.reads_source) else ()


class VocabHead(Head):
    def __init__(self, spec: Vocab, site: Site, vocab: int) -> None:
        super().__init__()
        self.scale = spec.scale
        self.weight = None if spec.tied else nn.Parameter(torch.empty(vocab, site.width))
        self.bias = nn.Parameter(torch.zeros(vocab)) if spec.bias else None
        self.readout = 2.0 * vocab * site.width

    def forward(self, x: Tensor, table: Tensor | None, at: Coords | None = None) -> Tensor:
        return F.linear(self.read(x), self._weight(table), self.bias)

    def loss(self, x: Tensor, table: Tensor | None, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        x = self.read(x).flatten(0, -2)
        return smoothed_loss(x, self._weight(table), self.bias, target.flatten(), smoothing)

    def score(self, x: Tensor, table: Tensor | None, ids: Tensor) -> Tensor:
        """Return the scores of these tokens alone: of x (…, d) and ids (…, k), the logits (…, k)."""
        found = (F.embedding(ids, self._weight(table)) @ self.read(x).unsqueeze(-1)).squeeze(-1)
        return found if self.bias is None else found + self.bias[ids]

    def read(self, x: Tensor) -> Tensor:
        """Return the input of the product with the table."""
        return x * self.scale if self.scale != 1.0 else x

    def flops(self, n: int) -> float:
        return super().flops(n) + self.readout

    def _weight(self, table: Tensor | None) -> Tensor:
        weight = table if self.weight is None else self.weight
        assert weight is not None  # a tied head without a table is refused when the model is built
        return weight


@HEADS.add
@spec
class Masked(HeadSpec):
    """A score for every token from `norm(activation(dense(x)))`: BERT's head for masked tokens (Devlin et al. 2018)."""

    activation: str = "gelu"
    norm: NormSpec = LayerNorm(1e-12)
    tied: bool = True

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise UnknownName("activation", self.activation, ACTIVATIONS)

    def build(self, site: Site, vocab: int) -> MaskedHead:
        return MaskedHead(self, site, vocab)

    def refusals(self, width: int, table: int) -> list[str]:
        return table_refusals(self.tied, width, table)

    def shares(self, other: HeadSpec | None) -> tuple[str, ...]:
        """All parts or none, because each reads the output of the one before."""
        same = isinstance(other, Masked) and (self.activation, self.norm) == (other.activation, other.norm)
        return ("weight", "bias", "dense", "norm") if same else ()


class MaskedHead(VocabHead):
    def __init__(self, spec: Masked, site: Site, vocab: int) -> None:
        super().__init__(Vocab(spec.tied, bias=True), site, vocab)
        self.dense = nn.Linear(site.width, site.width)
        self.activation = ACTIVATIONS[spec.activation]
        self.norm = spec.norm.build(site.width)

    def read(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(self.activation(self.dense(x)))
        return out


@HEADS.add
@spec
class Classes(HeadSpec):
    """A score for every class: per row, from its `first` token or the `mean` of all; without `pool`, per token.

    `hidden` adds a layer before it: BERT's pooler and ViT's pre-training head (tanh), DistilBERT's (ReLU).
    """

    count: Count
    pool: Literal["first", "mean"] | None = "first"
    hidden: bool = False
    dropout: Share = 0.0
    activation: str = "tanh"

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise UnknownName("activation", self.activation, ACTIVATIONS)

    def build(self, site: Site, vocab: int) -> ClassHead:
        return ClassHead(self, site)

    def shares(self, other: HeadSpec | None) -> tuple[str, ...]:
        """The pooler, and the classes if they read the same and are equally many; a spec does not know their meaning."""
        if not isinstance(other, Classes):
            return _shared_pooler(self, other)
        reads = (self.pool, self.hidden, self.activation) == (other.pool, other.hidden, other.activation)
        return (*_shared_pooler(self, other), *(("classes",) if reads and self.count == other.count else ()))


class PoolHead(Head):
    """A head that pools rows and can add a hidden layer."""

    def __init__(
        self, site: Site, pool: Literal["first", "mean"] | None, hidden: bool, activation: str = "tanh"
    ) -> None:
        super().__init__()
        self.path, self.pool = site.path, pool
        self.dense = nn.Linear(site.width, site.width) if hidden else None
        self.activation = ACTIVATIONS[activation]

    def read(self, x: Tensor, at: Coords | None) -> Tensor:
        """Pool the stream and apply the hidden layer, if set: what BERT calls the pooled output."""
        if self.pool is not None:
            if at is None:
                raise ShapeError(f"{self.path} pools its rows and needs coordinates; use logits(stream, at)")
            x = pool_stream(x, at, self.pool)
        return x if self.dense is None else self.activation(self.dense(x))

    def loss(self, x: Tensor, table: Tensor | None, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        """A pooled row has one answer, so there is no loss per token."""
        raise ShapeError(f"{self.path} pools its rows and has no loss per token; use the loss of logits(stream, at)")

    def flops(self, n: int) -> float:
        return super().flops(n) / (1 if self.pool is None else n)


class ClassHead(PoolHead):
    def __init__(self, spec: Classes, site: Site) -> None:
        super().__init__(site, spec.pool, spec.hidden, spec.activation)
        self.dropout = Dropout(spec.dropout)
        self.classes = nn.Linear(site.width, spec.count)

    def forward(self, x: Tensor, table: Tensor | None, at: Coords | None = None) -> Tensor:
        out: Tensor = self.classes(self.dropout(self.read(x, at)))
        return out

    def loss(self, x: Tensor, table: Tensor | None, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        """Return the loss per token with targets (b, n); for pooled rows use the loss of their logits instead."""
        if self.pool is not None:
            return super().loss(x, table, target, smoothing)
        x = self.dropout(self.read(x, None)).flatten(0, -2)
        return smoothed_loss(x, self.classes.weight, self.classes.bias, target.flatten(), smoothing)


@HEADS.add
@spec
class Vector(HeadSpec):
    """One vector per row, from its `first` token or the `mean` of all; `hidden` adds a tanh layer (BERT's pooler)."""

    pool: Literal["first", "mean"] = "first"
    hidden: bool = False

    def build(self, site: Site, vocab: int) -> PoolHead:
        return VectorHead(site, self.pool, self.hidden)

    def shares(self, other: HeadSpec | None) -> tuple[str, ...]:
        return _shared_pooler(self, other)


class VectorHead(PoolHead):
    def forward(self, x: Tensor, table: Tensor | None, at: Coords | None = None) -> Tensor:
        return self.read(x, at)


@HEADS.add
@spec
class Bernoulli(HeadSpec):
    """A score for each of `count` things at every position, any number of which may be true at once."""

    count: Count

    def build(self, site: Site, vocab: int) -> BernoulliHead:
        return BernoulliHead(self, site)

    def shares(self, other: HeadSpec | None) -> tuple[str, ...]:
        return ("keys",) if self == other else ()


class BernoulliHead(Head):
    def __init__(self, spec: Bernoulli, site: Site) -> None:
        super().__init__()
        self.keys = nn.Linear(site.width, spec.count)

    def forward(self, x: Tensor, table: Tensor | None, at: Coords | None = None) -> Tensor:
        out: Tensor = self.keys(x)
        return out

    def loss(self, x: Tensor, table: Tensor | None, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        """Return the loss against targets (b, n, count) of zeros and ones; smoothing moves them toward a half."""
        scores, wanted = self.keys(x).float(), target.float()
        plain = F.binary_cross_entropy_with_logits(scores, wanted, reduction="sum")
        if not smoothing:
            return plain, plain.detach()
        soft = torch.lerp(wanted, torch.full_like(wanted, 0.5), smoothing)
        return F.binary_cross_entropy_with_logits(scores, soft, reduction="sum"), plain.detach()


def _shared_pooler(one: Classes | Vector, other: HeadSpec | None) -> tuple[str, ...]:
    """Return the hidden layer if both heads pool and activate alike, whether for classes or a vector."""

    def reads(head: Classes | Vector) -> tuple[object, ...]:
        return head.hidden, head.pool, getattr(head, "activation", "tanh")

    same = isinstance(other, Classes | Vector) and one.hidden and reads(one) == reads(other)
    return ("dense",) if same else ()


def pool_stream(x: Tensor, at: Coords, how: Literal["first", "mean"]) -> Tensor:
    """Pool x (b, n, d) to one vector per row: that of the first token, or the mean of all tokens."""
    kept = at.kept.expand(x.shape[0], -1)
    if how == "first":
        return x[torch.arange(x.shape[0], device=x.device), kept.to(torch.uint8).argmax(1)]
    there = kept.unsqueeze(2).to(x.dtype)
    return (x * there).sum(1) / there.sum(1).clamp(min=1)
