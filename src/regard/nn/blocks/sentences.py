"""Sentences as vectors, for memory networks.

Sukhbaatar et al. 2015.
A row is a question and a story: position 0 is the question, position i the sentence i before it. Each is a list of words, of
which 0 is none. The vectors of all tables stand side by side:

    (b, s, w)                  table 1   table 2   …
    question      words   ──▶  Σ l·A₁    Σ l·A₂            l: all words alike (bag), or by their place in the sentence
    newest        words   ──▶  Σ l·A₁    Σ l·A₂            each + a learned vector of how long ago it was (temporal)
    …

Place j of J, coordinate k of d (§4.1): l = (1 − j/J) − (k/d)(1 − 2j/J) = ½ + 2(j/J − ½)(k/d − ½). `centered` is twice that with
both counted from the middle, as in the authors' code.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import ShapeError
from regard.nn.blocks.embedding import EMBEDS, Embedding, EmbedSpec
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import Site
from regard.nn.core.shape import sizes
from regard.spec import Count, spec

NONE = 0
"""The word that is none: its vector is zero."""


@EMBEDS.add
@spec
class Sentences(EmbedSpec):
    """Vectors of sentences (b, s, w), those of several tables side by side."""

    vocab: Count
    tables: Count
    """Number of tables, whose vectors stand side by side."""
    encoding: Literal["bag", "position", "centered"] = "centered"
    """Sum of words: all alike; by place, as in the paper; or twice that, counted from the middle (authors' code)."""
    temporal: bool = True
    """Add a learned vector of how many sentences ago it was."""

    def build(self, site: Site) -> SentenceEmbedding:
        return SentenceEmbedding(self, site)

    def leaves(self, width: int) -> int:
        return self.tables * width

    def table_width(self, width: int) -> int:
        return width


class SentenceEmbedding(Embedding):
    weight: nn.Parameter

    def __init__(self, spec: Sentences, site: Site) -> None:
        super().__init__()
        self.spec, self.path, self.width, self.length = spec, site.path, site.width, site.length
        self.weight = nn.Parameter(torch.empty(spec.vocab, spec.tables * site.width))
        self.ago = nn.Parameter(torch.empty(site.length, spec.tables * site.width)) if spec.temporal else None

    @property
    def table(self) -> Tensor:
        """The last table: the answer's matrix with adjacent tying."""
        return self.weight[:, -self.width :]

    def initialize(self) -> None:
        self.weight[NONE] = 0.0

    def forward(self, ids: Tensor, at: Coords, table: Tensor | None = None) -> Tensor:
        sizes(ids, "b s w", s=at.n)
        if self.ago is not None and at.n > self.length:
            raise ShapeError(
                f"{self.path} knows a question and {self.length - 1} sentences, got {at.n - 1}; leave out the oldest"
            )
        rows = ids.flatten(0, 1)
        out: Tensor = F.embedding_bag(rows, self.weight, mode="sum", padding_idx=NONE)
        if self.spec.encoding != "bag":
            word, coordinate, base = self._places(rows != NONE)
            turned = F.embedding_bag(rows, self.weight, mode="sum", per_sample_weights=word, padding_idx=NONE)
            out = base * torch.addcmul(out, turned, coordinate.repeat(self.spec.tables))
        out = out.view(*ids.shape[:2], -1)
        if self.ago is not None:
            out = out + self._ages(at)
        return out

    def _ages(self, at: Coords) -> Tensor:
        """Return what is added for how long ago a sentence was; nothing to the question."""
        assert self.ago is not None
        if at.first == 0:  # every row counts alike, but for padding, which nobody reads
            return F.pad(self.ago[1 : at.n], (0, 0, 1, 0))
        return F.embedding(at.pos.clamp(min=0), self.ago) * (at.pos > 0).unsqueeze(-1)

    def _places(self, there: Tensor) -> tuple[Tensor, Tensor, float]:
        """Four times the place of each word in its sentence (sentences, w), of each coordinate (d,), and the factor.

        Places are counted from the middle, from −½ to ½.
        """
        kind = self.weight.dtype
        count = there.sum(-1, keepdim=True).clamp(min=1).to(kind)
        j = there.cumsum(-1).to(kind)
        k = torch.arange(1, self.width + 1, device=there.device, dtype=kind)
        if self.spec.encoding == "position":
            return 4 * j / count - 2, k / self.width - 0.5, 0.5
        return (4 * j - 2 * (count + 1)) / count, (k - (self.width + 1) / 2) / self.width, 1.0

    def sample(self, n: int) -> tuple[Tensor, Coords]:
        device, n = self.weight.device, min(n, self.length)
        return torch.ones(2, n, 3, dtype=torch.long, device=device), Coords.lengths([n, max(n - 1, 1)], device)
