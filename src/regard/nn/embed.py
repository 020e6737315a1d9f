"""Embeddings: from token ids to the stream."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import SpecError
from regard.nn.coords import Coords
from regard.nn.dropout import Dropout
from regard.nn.mixer import Site
from regard.nn.norm import NormSpec
from regard.nn.position import Position, PositionSpec
from regard.registry import Table, kind_of
from regard.spec import Count, Share, Spec, spec

EMBEDS: Table[type[EmbedSpec]] = Table("embedding")


class EmbedSpec(Spec):
    """From what comes in to the stream."""

    table = EMBEDS
    vocab: int

    def build(self, site: Site) -> Embedding:
        raise NotImplementedError


class Embedding(nn.Module):
    """`(ids, at) -> (b, n, d)`; `weight` is the table the head may share."""

    weight: nn.Parameter

    def forward(self, ids: Tensor, at: Coords) -> Tensor:
        raise NotImplementedError


@spec
class Tokens(EmbedSpec):
    """A vector a token; `scaled` multiplies it by √d, as the paper does, before the position joins."""

    vocab: Count
    position: PositionSpec | None = None
    scaled: bool = False
    norm: NormSpec | None = None
    dropout: Share = 0.0

    def build(self, site: Site) -> Embedding:
        return TokenEmbedding(self, site)


class TokenEmbedding(Embedding):
    def __init__(self, spec: Tokens, site: Site) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(spec.vocab, site.width))
        self.scale = site.width**0.5 if spec.scaled else 1.0
        self.position: Position | None = None
        if spec.position is not None:
            if "embed" not in spec.position.acts:
                name = kind_of(type(spec.position))
                raise SpecError(
                    f"position {name!r} acts on attention; write it in the stack or mixer, not in {site.path}"
                )
            self.position = spec.position.build(site.at("position"))
        self.norm = spec.norm.build(site.width) if spec.norm else None
        self.dropout = Dropout(spec.dropout)

    def forward(self, ids: Tensor, at: Coords) -> Tensor:
        x = F.embedding(ids, self.weight)
        x = x * self.scale if self.scale != 1.0 else x
        x = x if self.position is None else self.position.embed(x, at)
        x = x if self.norm is None else self.norm(x)
        out: Tensor = self.dropout(x)
        return out


EMBEDS.add(Tokens)
