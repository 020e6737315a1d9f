"""Outputs word by word: how sure the model was of each, and which word of the source it was looking at.

A word is what stands between spaces. Its probability is the product of those of its tokens; it is linked to the source word
that got most of its attention, summed over the tokens of the source word, averaged over its own and over the heads of a layer.
The last layer but one is usually the best guide (Garg et al. 2019); where there are but one or two, the last is.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regard.decode import SpecialTokens
from regard.decode.score import TokenScores, find_cross_attention, score_tokens
from regard.errors import SpecError
from regard.model.net import Net
from regard.text import Tokenizer
from regard.text.word_ids import TokenizedWords

Links = list[tuple[int, int]]
"""Pairs of a source word and a target word, counted from 0."""


@dataclasses.dataclass(frozen=True)
class Confidence:
    """The words of an output, the probability of each, and that of the end after them: their product is the output's."""

    words: list[str]
    probs: list[float]
    end: float

    def plain(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        return {
            "words": [{"text": w, "confidence": p} for w, p in zip(self.words, self.probs, strict=True)],
            "end": self.end,
        }


@dataclasses.dataclass(frozen=True)
class Wordwise:
    """Pairs of sources, as the encoder reads them, and what was written, by the tokenizer of the latter."""

    sources: Sequence[Sequence[int]]
    read: Sequence[TokenizedWords]
    written: Sequence[TokenizedWords]
    front: int
    """So many marks come before the first token of a source's text."""
    tokenizer: Tokenizer

    def confidence(self, *nets: Net) -> list[Confidence]:
        return [sure(*each) for each in zip(self.written, self._tell(nets), strict=True)]

    def align(self, net: Net, layer: int | None = None) -> list[Links]:
        """By the cross-attention of this layer, counted from 0 or from the end; without, by the one that `guide` says."""
        kept = find_cross_attention(net, SpecialTokens.of(self.tokenizer))
        if not kept:
            raise SpecError("this model shows nothing of how it looks at the source, so its words cannot be aligned")
        layer = guide(len(kept)) if layer is None else layer
        if not -len(kept) <= layer < len(kept):
            raise SpecError(f"layer should be {-len(kept)} to {len(kept) - 1}, got {layer}")
        return self._links(self._tell([net], kept[layer]))

    def plain(self, nets: Sequence[Net]) -> list[dict[str, Any]]:
        """All there is to say of each pair, ready for JSON; links if the first net shows what it looks at."""
        kept = find_cross_attention(nets[0], SpecialTokens.of(self.tokenizer))
        place = kept[guide(len(kept))] if kept else None
        told = self._tell(nets, place)
        out = [sure(*each).plain() for each in zip(self.written, told, strict=True)]
        if place is not None:
            for each, found in zip(out, self._links(told), strict=True):
                each["alignment"] = [list(link) for link in found]
        return out

    def _tell(self, nets: Sequence[Net], place: str | None = None) -> list[TokenScores]:
        ids = [[*text.ids, self.tokenizer.eos] for text in self.written]
        return score_tokens(nets, self.sources, ids, SpecialTokens.of(self.tokenizer), place=place)

    def _links(self, told: Sequence[TokenScores]) -> list[Links]:
        each = zip(self.read, self.written, (t.weights for t in told), strict=True)
        return [links(read, written, weights, self.front) for read, written, weights in each if weights is not None]


def guide(layers: int) -> int:
    """The layer whose attention is the best guide to which word comes from which."""
    return -2 if layers > 2 else -1


def sure(text: TokenizedWords, told: TokenScores) -> Confidence:
    """What was told of the tokens of a text and its end mark, as of its words."""
    spoken = len(text.ids) if text.words else 0  # spaces alone are no word
    totals = torch.zeros(len(text.words), dtype=torch.float64)
    totals.index_add_(0, torch.tensor(text.owner[:spoken], dtype=torch.long), told.log_probs[:spoken])
    return Confidence(text.words, totals.exp().tolist(), math.exp(float(told.log_probs[spoken:].sum())))


def links(read: TokenizedWords, written: TokenizedWords, weights: Tensor, front: int) -> Links:
    """The source word that each word looked at most, by the weights (n, m) of its tokens on those of the source."""
    owner = read.owner[: weights.shape[1] - front - 1]  # what did not fit was not read, and the last is the end mark
    if not owner or not read.words or not written.words:
        return []
    seen = torch.zeros(len(written.ids), len(read.words), dtype=weights.dtype)
    seen.index_add_(1, torch.tensor(owner), weights[: len(written.ids), front : front + len(owner)])
    each = torch.zeros(len(written.words), len(read.words), dtype=weights.dtype)
    each.index_add_(0, torch.tensor(written.owner), seen)  # where the sum is largest, the average is, too
    return [(int(each[word].argmax()), word) for word in sorted(set(written.owner))]
