"""Heads: from the stream to logits, and the training loss that never stores all of them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn.loss import smoothed_loss
from regard.nn.mixer import Site
from regard.registry import Table
from regard.spec import Spec, spec

HEADS: Table[type[HeadSpec]] = Table("head")


class HeadSpec(Spec):
    """What the stream is turned into."""

    table = HEADS

    def build(self, site: Site, vocab: int) -> Head:
        raise NotImplementedError

    def refusals(self, width: int, table: int) -> list[str]:
        """What it cannot do with a stream this wide and an embedding whose table is that wide."""
        return []


class Head(nn.Module):
    """`(x, table) -> logits`, where `table` is the embedding's weight for a head that shares it."""

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        raise NotImplementedError


@spec
class Vocab(HeadSpec):
    """A score for every token. `tied` uses the embedding's own matrix; `scale` multiplies the stream first (T5)."""

    tied: bool = True
    bias: bool = False
    scale: float = 1.0

    def build(self, site: Site, vocab: int) -> VocabHead:
        return VocabHead(self, site, vocab)

    def refusals(self, width: int, table: int) -> list[str]:
        if not self.tied or width == table:
            return []
        return [
            f"a tied head reads a stream as wide as the embedding, {table}, and this one is {width}; set head.tied: false"
        ]


class VocabHead(Head):
    def __init__(self, spec: Vocab, site: Site, vocab: int) -> None:
        super().__init__()
        self.scale = spec.scale
        self.weight = None if spec.tied else nn.Parameter(torch.empty(vocab, site.width))
        self.bias = nn.Parameter(torch.zeros(vocab)) if spec.bias else None

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        return F.linear(x * self.scale if self.scale != 1.0 else x, self._weight(table), self.bias)

    def loss(self, x: Tensor, table: Tensor, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        """Summed loss of the stream (b, n, d) against targets (b, n), and the part of it that is plain likelihood."""
        x = x * self.scale if self.scale != 1.0 else x
        return smoothed_loss(x.flatten(0, -2), self._weight(table), self.bias, target.flatten(), smoothing)

    def _weight(self, table: Tensor) -> Tensor:
        return table if self.weight is None else self.weight


HEADS.add(Vocab)
