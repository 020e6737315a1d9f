"""Card of a head, and its links between words.

A card sums up the attention weights of a head: entropy, mean distance, and the shares on the previous, next, same and first
token. `rank_links` orders all heads by how much one word attends to another; `PairCounter` finds the words of a corpus that a
head links most.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from regard.errors import SpecError


@dataclasses.dataclass(frozen=True)
class HeadCard:
    """Averages over the queries of one or more texts."""

    layer: str
    head: int
    entropy: float
    """In bits; 0: it always attends to a single token."""
    distance: float
    """Mean |i − j| by weight."""
    previous: float
    next: float
    same: float
    first: float


@dataclasses.dataclass(frozen=True)
class HeadLink:
    """Attention of a head from one word to another."""

    layer: str
    head: int
    weight: float
    rank: int
    """Rank of the target among all that the query attends to, from 1."""


def describe_heads(maps: Sequence[Mapping[str, Tensor]]) -> list[HeadCard]:
    """A card for every head of self-attention weights (h, n, n) by layer, averaged over the texts that have the layer."""
    cards = []
    for layer in dict.fromkeys(name for weights in maps for name in weights):
        found = [weights[layer].double() for weights in maps if layer in weights]
        texts = [weights for weights in found if weights.shape[-2] == weights.shape[-1]]
        if not texts:
            continue
        rows = sum(w.shape[1] for w in texts)
        total = torch.zeros(6, texts[0].shape[0], dtype=torch.double)
        for w in texts:
            n = w.shape[1]
            away = torch.arange(n).unsqueeze(1) - torch.arange(n)
            total[0] += -(w * w.clamp(min=1e-30).log2()).sum((1, 2))
            total[1] += (w * away.abs()).sum((1, 2))
            for i, gap in enumerate((1, -1, 0)):
                total[2 + i] += (w * (away == gap)).sum((1, 2))
            total[5] += w[:, :, 0].sum(1)
        cards += [HeadCard(layer, head, *values) for head, values in enumerate((total / rows).t().tolist())]
    return cards


@dataclasses.dataclass(frozen=True)
class WordPair:
    """Two words of a corpus, and how much a head attends from one to the other where both occur."""

    query: str
    key: str
    weight: float
    """The mean weight."""
    count: int


class PairCounter:
    """Collects the weight between words over the texts of a corpus, for every head."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, int], dict[tuple[str, str], float]] = defaultdict(lambda: defaultdict(float))
        self._texts: dict[str, list[tuple[Counter[str], Counter[str]]]] = defaultdict(list)

    def add(
        self, layer: str, weights: Tensor, queries: Sequence[str], keys: Sequence[str], least: float = 0.02
    ) -> None:
        """Add the weights (h, n, m) between the words of a text; those below `least` count as 0."""
        self._texts[layer].append((Counter(queries), Counter(keys)))
        for head, matrix in enumerate(weights):
            own = self._sums[layer, head]
            for i, j in (matrix >= least).nonzero().tolist():
                own[queries[i], keys[j]] += float(matrix[i, j])

    def most_attended(self, layer: str, head: int, most: int = 5) -> list[WordPair]:
        """The pairs with the largest total weight."""
        sums = self._sums[layer, head]
        best = sorted(sums, key=lambda pair: (-sums[pair], pair))[:most]
        counts = [sum(queries[q] * keys[k] for queries, keys in self._texts[layer]) for q, k in best]
        return [WordPair(*pair, sums[pair] / count, count) for pair, count in zip(best, counts, strict=True)]


def rank_links(weights: Mapping[str, Tensor], queries: Sequence[int], keys: Sequence[int]) -> list[HeadLink]:
    """All heads by the weight (h, n, m) from the tokens of one word to those of another, strongest first.

    The weight of a word of several tokens is the mean over the query's tokens and the sum over the key's.
    """
    if not queries or not keys:
        raise SpecError("a link needs at least one token on either side")
    found = []
    for layer, each in weights.items():
        if each.shape[1] <= max(queries) or each.shape[2] <= max(keys):
            continue
        row = each[:, list(queries)].double().mean(1)
        weight = row[:, list(keys)].sum(1)
        rank = (row > row[:, list(keys)].amax(1, keepdim=True)).sum(1) + 1
        found += [
            HeadLink(layer, head, w, r) for head, (w, r) in enumerate(zip(weight.tolist(), rank.tolist(), strict=True))
        ]
    return sorted(found, key=lambda link: -link.weight)
