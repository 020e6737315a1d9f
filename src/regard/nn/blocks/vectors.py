"""Vectors as inputs: frames of music, or any row of numbers.

Each position of the stream is a linear map of the numbers that stand there, such as which keys sound in a frame.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor, nn

from regard.errors import SpecError
from regard.nn.blocks.embedding import EMBEDS, Embedding, EmbedSpec
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import Site
from regard.nn.core.shape import sizes
from regard.nn.layers.dropout import Dropout
from regard.nn.positions.position import PositionSpec
from regard.registry import kind_of
from regard.spec import Count, Share, spec


@EMBEDS.add
@spec
class Vectors(EmbedSpec):
    """A linear map of the numbers (b, n, size) at each position."""

    size: Count
    """Number of values at a position."""
    position: PositionSpec | None = None
    dropout: Share = 0.0
    width: Count | None = None
    """Width of the result where it is not that of the model."""
    vocab = 0

    def build(self, site: Site) -> VectorEmbedding:
        return VectorEmbedding(self, dataclasses.replace(site, width=self.leaves(site.width)))

    def leaves(self, width: int) -> int:
        return self.width or width


class VectorEmbedding(Embedding):
    def __init__(self, spec: Vectors, site: Site) -> None:
        super().__init__()
        self.spec = spec
        self.register_parameter("weight", None)  # there is no table to share
        self.map = nn.Linear(spec.size, site.width)
        self.position = None
        if spec.position is not None:
            if spec.position.acts and "embed" not in spec.position.acts:
                name = kind_of(type(spec.position))
                raise SpecError(
                    f"position {name!r} acts on attention; set it in the stack or mixer, not in {site.path}"
                )
            self.position = spec.position.build(site.at("position"))
        self.dropout = Dropout(spec.dropout)

    def forward(self, ids: Tensor, at: Coords, table: Tensor | None = None) -> Tensor:
        sizes(ids, "b n k", n=at.n, k=self.spec.size)
        x = self.map(ids.to(self.map.weight.dtype))
        x = x if self.position is None else self.position.embed(x, at)
        out: Tensor = self.dropout(x)
        return out

    def sample(self, n: int) -> tuple[Tensor, Coords]:
        device = self.map.weight.device
        return torch.zeros(2, n, self.spec.size, device=device), Coords.lengths([n, max(n - 1, 1)], device)
