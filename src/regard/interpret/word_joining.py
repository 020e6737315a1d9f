"""Tokens joined to words, for people who read the views."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from regard.errors import SpecError

SPECIAL = re.compile(r"<[^<>\s]+>|\[[A-Z]+\d*\]|first|\d+,\d+")
"""Labels of tokens that are no text: marks, and the patches of an image."""
EDGES = "▁.,;:!?\"'()[]«»„“”"


def word_of_tokens(labels: Sequence[str]) -> list[int]:
    """The number of the word that each token belongs to, counted from 0.

    WordPiece marks pieces that continue a word (##), BPE with @@ those that do not end one; otherwise ▁ begins a word. Where
    no label says anything of the kind, every token is a word.
    """
    pieces, ends = any(t.startswith("##") for t in labels), any(t.endswith("@@") for t in labels)
    spaces = any("▁" in t for t in labels)
    out: list[int] = []
    word, open_ = -1, False
    for label in labels:
        if SPECIAL.fullmatch(label):
            starts = True
        elif pieces:
            starts = not label.startswith("##")
        elif ends:
            starts = not open_
        else:
            starts = not spaces or label.startswith("▁") or not out or bool(SPECIAL.fullmatch(labels[len(out) - 1]))
        word += int(starts or not out)
        open_ = label.endswith("@@")
        out.append(word)
    return out


def join_labels(labels: Sequence[str], owner: Sequence[int]) -> list[str]:
    """The text of each word."""
    words = [""] * (max(owner, default=-1) + 1)
    for label, word in zip(labels, owner, strict=True):
        words[word] += label.removeprefix("##").removesuffix("@@")
    return [word.strip("▁") or word for word in words]


def join_weights(weights: Tensor, queries: Sequence[int], keys: Sequence[int]) -> Tensor:
    """Weights (h, n, m) between words: the mean over the tokens that look, the sum over those that are looked at."""
    h = weights.shape[0]
    rows, columns = max(queries, default=-1) + 1, max(keys, default=-1) + 1
    index = torch.tensor(list(queries), dtype=torch.long), torch.tensor(list(keys), dtype=torch.long)
    seen = weights.new_zeros(h, weights.shape[1], columns).index_add_(2, index[1], weights)
    out = weights.new_zeros(h, rows, columns).index_add_(1, index[0], seen)
    return out / index[0].bincount(minlength=rows).view(1, -1, 1)


def find_word(labels: Sequence[str], word: str) -> list[int]:
    """The tokens of the first word that is spelled like this; capitals and punctuation do not matter."""
    owner = word_of_tokens(labels)
    words = [text.strip(EDGES).casefold() for text in join_labels(labels, owner)]
    wanted = word.strip(EDGES).casefold()
    if wanted not in words:
        said = ", ".join(repr(w) for w in words if w)
        raise SpecError(f"there is no word {word!r} here; there are {said}")
    first = words.index(wanted)
    return [i for i, each in enumerate(owner) if each == first]
