"""Confidence and alignment of the words of an output.

A word is what stands between spaces. Its probability is the product of those of its tokens. It is aligned to the
source word that gets most of its attention: summed over the tokens of the source word, averaged over its own tokens
and over the heads of a layer. The penultimate layer is usually the best one (Garg et al. 2019); of one or two layers,
the last.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from regard.decode import SpecialTokens
from regard.decode.scoring import TokenScores, find_cross_attention, score_tokens
from regard.errors import SpecError
from regard.model.net import Net
from regard.text import Tokenizer
from regard.text.word_ids import TokenizedWords

Alignment = list[tuple[int, int]]
"""Pairs (source word, target word), counted from 0."""


@dataclasses.dataclass(frozen=True)
class Confidence:
    """The words of an output, the probability of each, and that of the end; their product is the output's."""

    words: list[str]
    probs: list[float]
    end: float

    def plain(self) -> dict[str, object]:
        """All fields, ready for JSON."""
        return {
            "words": [{"text": w, "confidence": p} for w, p in zip(self.words, self.probs, strict=True)],
            "end": self.end,
        }


@dataclasses.dataclass(frozen=True)
class WordPairs:
    """Sources as the encoder reads them, with their words and those that were written."""

    sources: Sequence[Sequence[int]]
    read: Sequence[TokenizedWords]
    written: Sequence[TokenizedWords]
    front: int
    """Number of special tokens before the text of a source."""
    tokenizer: Tokenizer

    def confidence(self, *nets: Net) -> list[Confidence]:
        return [word_confidence(*each) for each in zip(self.written, self._score_tokens(nets), strict=True)]

    def align(self, net: Net, layer: int | None = None) -> list[Alignment]:
        """Alignments by the cross-attention of a layer, counted from 0 or from the end; by default `default_layer`."""
        kept = find_cross_attention(net, SpecialTokens.of(self.tokenizer))
        if not kept:
            raise SpecError("this model has no attention weights on the source, so its words cannot be aligned")
        layer = default_layer(len(kept)) if layer is None else layer
        if not -len(kept) <= layer < len(kept):
            raise SpecError(f"layer should be {-len(kept)} to {len(kept) - 1}, got {layer}")
        return self._align(self._score_tokens([net], kept[layer]))

    def plain(self, nets: Sequence[Net]) -> list[dict[str, object]]:
        """Everything about each pair, ready for JSON; with alignments if the first net has attention weights."""
        kept = find_cross_attention(nets[0], SpecialTokens.of(self.tokenizer))
        place = kept[default_layer(len(kept))] if kept else None
        scores = self._score_tokens(nets, place)
        out = [word_confidence(*each).plain() for each in zip(self.written, scores, strict=True)]
        if place is not None:
            for each, found in zip(out, self._align(scores), strict=True):
                each["alignment"] = [list(link) for link in found]
        return out

    def _score_tokens(self, nets: Sequence[Net], place: str | None = None) -> list[TokenScores]:
        ids = [[*text.ids, self.tokenizer.eos] for text in self.written]
        return score_tokens(nets, self.sources, ids, SpecialTokens.of(self.tokenizer), place=place)

    def _align(self, scores: Sequence[TokenScores]) -> list[Alignment]:
        each = zip(self.read, self.written, (t.weights for t in scores), strict=True)
        return [
            align_words(read, written, weights, self.front) for read, written, weights in each if weights is not None
        ]


def default_layer(layers: int) -> int:
    """The layer whose attention gives the best alignments."""
    return -2 if layers > 2 else -1


def word_confidence(text: TokenizedWords, scores: TokenScores) -> Confidence:
    """The probabilities of words from those of tokens; the last token is the end mark."""
    spoken = len(text.ids) if text.words else 0  # spaces alone are no word
    totals = torch.zeros(len(text.words), dtype=torch.float64)
    totals.index_add_(0, torch.tensor(text.owner[:spoken], dtype=torch.long), scores.log_probs[:spoken])
    return Confidence(text.words, totals.exp().tolist(), math.exp(float(scores.log_probs[spoken:].sum())))


def align_words(read: TokenizedWords, written: TokenizedWords, weights: Tensor, front: int) -> Alignment:
    """For each word the source word with most attention, from the weights (n, m) of tokens."""
    owner = read.owner[: weights.shape[1] - front - 1]  # what did not fit was not read, and the last is the end mark
    if not owner or not read.words or not written.words:
        return []
    seen = torch.zeros(len(written.ids), len(read.words), dtype=weights.dtype)
    seen.index_add_(1, torch.tensor(owner), weights[: len(written.ids), front : front + len(owner)])
    each = torch.zeros(len(written.words), len(read.words), dtype=weights.dtype)
    each.index_add_(0, torch.tensor(written.owner), seen)  # where the sum is largest, the average is, too
    return [(int(each[word].argmax()), word) for word in sorted(set(written.owner))]
