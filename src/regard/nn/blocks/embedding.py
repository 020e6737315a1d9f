"""Embeddings: from token ids to the stream."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from regard.errors import ShapeError, SpecError
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import Site
from regard.nn.core.part import Part
from regard.nn.layers.dropout import Dropout
from regard.nn.layers.norm import NormSpec
from regard.nn.positions.position import Position, PositionSpec
from regard.registry import Registry, kind_of
from regard.spec import Count, Share, Spec, spec

EMBEDS: Registry[type[EmbedSpec]] = Registry("embedding")


class EmbedSpec(Spec):
    """Turns inputs into the stream."""

    registry = EMBEDS
    vocab: int

    def build(self, site: Site) -> Embedding:
        raise NotImplementedError

    def leaves(self, width: int) -> int:
        """Return the width of the stream it makes in a model of this width."""
        return width

    def table_width(self, width: int) -> int:
        """Return the width of the table that others may share."""
        return self.leaves(width)

    def refusals(self, path: str, width: int, other: EmbedSpec | None) -> list[str]:
        """List what it cannot do in a model of this width; `other` is the other side's embedding, if there is one."""
        return []


class Embedding(Part):
    """`(ids, at, table) -> (b, n, d)`; `table` is what others may share: by default its `weight`, if there is one.

    The argument `table` is the other side's, for an embedding that shares it. `ids` are whatever the task puts into a batch,
    one entry for each position of the stream: tokens (b, n), sentences (b, n, w), or an image, which fills all positions.
    """

    weight: nn.Parameter | None

    @property
    def table(self) -> Tensor | None:
        return self.weight

    def forward(self, ids: Tensor, at: Coords, table: Tensor | None = None) -> Tensor:
        raise NotImplementedError

    def sample(self, n: int) -> tuple[Tensor, Coords]:
        """Return a batch it can read: two rows of about `n` tokens, for trial runs."""
        device = next((p.device for p in self.parameters()), None)
        return torch.zeros(2, n, dtype=torch.long, device=device), Coords.lengths([n, n - 1], device)


@EMBEDS.add
@spec
class Tokens(EmbedSpec):
    """One vector per token; `scaled` multiplies it by √d_model, as in the paper, or by a number, before the position is added.

    `segments` adds a vector for each part of a text, given by `Coords.segment` (BERT's sentence pairs). A `tied` source uses
    the table of the other side and has its own positions (BART). `position: none` uses no positions. The vector of the
    token `zero` is always zero: Marian's decoder starts from it.
    """

    vocab: Count
    position: PositionSpec | None = None
    scaled: bool | float = False
    norm: NormSpec | None = None
    dropout: Share = 0.0
    segments: Annotated[int, Field(ge=0)] = 0
    tied: bool = False
    width: Count | None = None
    """Width of the vectors where it is not that of the model."""
    zero: Annotated[int, Field(ge=0)] | None = None
    """A token whose vector is always zero."""

    def build(self, site: Site) -> Embedding:
        return TokenEmbedding(self, dataclasses.replace(site, width=self.leaves(site.width)))

    def leaves(self, width: int) -> int:
        return self.width or width

    def refusals(self, path: str, width: int, other: EmbedSpec | None) -> list[str]:
        if not self.tied:
            return []
        table = 0 if other is None else other.vocab
        if other is None or not table:
            return [
                f"{path}.tied shares the table of an embedding of tokens, and there is no other; set it for `source`"
            ]
        if table != self.vocab:
            return [
                f"{path} shares a table of {table} tokens and asks for {self.vocab}; set {path}.vocab or leave out tied"
            ]
        if (shared := other.leaves(width)) != self.leaves(width):
            return [
                f"{path} shares a table of width {shared} and asks for {self.leaves(width)}; set {path}.width or leave out tied"
            ]
        return []


class TokenEmbedding(Embedding):
    weight: nn.Parameter | None

    def __init__(self, spec: Tokens, site: Site) -> None:
        super().__init__()
        self.path = site.path
        self.weight = None if spec.tied else nn.Parameter(torch.empty(spec.vocab, site.width))
        self.segment = nn.Parameter(torch.empty(spec.segments, site.width)) if spec.segments else None
        self.scale = site.width**0.5 if spec.scaled is True else float(spec.scaled or 1.0)
        self.zero = spec.zero
        self.position: Position | None = None
        if spec.position is not None:
            if spec.position.acts and "embed" not in spec.position.acts:
                name = kind_of(type(spec.position))
                raise SpecError(
                    f"position {name!r} acts on attention; set it in the stack or mixer, not in {site.path}"
                )
            self.position = spec.position.build(site.at("position"))
        self.norm = spec.norm.build(site.width) if spec.norm else None
        self.dropout = Dropout(spec.dropout)

    def forward(self, ids: Tensor, at: Coords, table: Tensor | None = None) -> Tensor:
        weight = table if self.weight is None else self.weight
        assert weight is not None  # a tied embedding without a table is refused when the model is built
        x = F.embedding(ids, weight)
        x = x if self.zero is None else x.masked_fill((ids == self.zero).unsqueeze(-1), 0.0)
        x = x * self.scale if self.scale != 1.0 else x
        x = self._add_segments(x, at)
        x = x if self.position is None else self.position.embed(x, at)
        x = x if self.norm is None else self.norm(x)
        out: Tensor = self.dropout(x)
        return out

    def _add_segments(self, x: Tensor, at: Coords) -> Tensor:
        """Add the vector of each token's segment; without segments in the batch, all tokens belong to the first."""
        if self.segment is None:
            if at.segment is not None:
                raise ShapeError(f"{self.path} has no segments and was given some; set {self.path}.segments")
            return x
        return x + (self.segment[0] if at.segment is None else F.embedding(at.segment.clamp(min=0), self.segment))
