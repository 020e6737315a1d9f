"""Alignment of tokens with words or characters.

Labels of words are learned on tokens; alignments and probabilities of tokens become those of words.

    words     Mr   Unwin  came        the first token of a word has its label; the other tokens have none
    tokens    ▁Mr  ▁Un win  ▁came
    first     0    1        3
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from regard.errors import DataError
from regard.text.tokenizer import Tokenizer

CharSpan = tuple[int, int]
"""Start and end of a word or character in its text."""


def align_words(
    tokenizer: Tokenizer, texts: Sequence[str], places: Sequence[Sequence[CharSpan]]
) -> list[tuple[list[int], list[int]]]:
    """Return the tokens of each text, and the first token of each of its words (given as spans).

    A word for which the tokenizer has no token becomes one unknown token.
    """
    found = zip(texts, tokenizer.encode_with_offsets(texts), places, strict=True)
    return [_align(tokenizer, text, ids, spans, where) for text, (ids, spans), where in found]


def _align(
    tokenizer: Tokenizer, text: str, ids: list[int], spans: Sequence[CharSpan], places: Sequence[CharSpan]
) -> tuple[list[int], list[int]]:
    out, first, t = list[int](), list[int](), 0
    for (start, end), (following, _) in pairwise([*places, (len(text) + 1, 0)]):
        while t < len(ids) and spans[t][1] <= start:
            out.append(ids[t])
            t += 1
        first.append(len(out))
        if t == len(ids) or spans[t][0] >= end:
            out.append(tokenizer.unk)
        while t < len(ids) and spans[t][0] < end:
            if spans[t][1] > following:
                raise DataError(
                    f"a token contains {text[slice(*spans[t])]!r}, which has several labels; use tokenizer: chars"
                )
            out.append(ids[t])
            t += 1
    return out + ids[t:], first


@dataclass(frozen=True)
class TokenizedWords:
    """A text as tokens, its words (between spaces), and the index of the word of each token.

    A token that is a space belongs to the word after it, as a space inside a token does.
    """

    ids: list[int]
    words: list[str]
    owner: list[int]


def tokenize_words(tokenizer: Tokenizer, texts: Sequence[str]) -> list[TokenizedWords]:
    """Tokenize texts as a model reads them."""
    found = zip(texts, tokenizer.encode_with_offsets(texts), strict=True)
    return [_assign_words(text, ids, spans) for text, (ids, spans) in found]


def group_tokens(tokenizer: Tokenizer, ids: Sequence[int]) -> TokenizedWords:
    """Group tokens that a model wrote into words; they may differ from the tokenization of their text."""
    text = tokenizer.decode(ids)
    ends = [_common_prefix(tokenizer.decode(ids[: i + 1]), text) for i in range(len(ids))]
    return _assign_words(text, list(ids), list(pairwise([0, *ends])))


def encode_inside(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the tokens of a text as in the middle of another text: its first token starts a word."""
    ((ids, first),) = align_words(tokenizer, [f"a {text}"], [[(0, 1), (2, 2 + len(text))]])
    alone = tokenizer.encode(text)
    return alone if ids[-len(alone) :] == alone else ids[first[1] :]


def _assign_words(text: str, ids: list[int], spans: Sequence[CharSpan]) -> TokenizedWords:
    found = list(re.finditer(r"\S+", text))
    ends, last = [word.end() for word in found], max(len(found) - 1, 0)
    owner = [min(bisect_right(ends, max(start, end - 1)), last) for start, end in spans]
    return TokenizedWords(ids, [word[0] for word in found], owner)


def _common_prefix(one: str, other: str) -> int:
    """Return the length of the common prefix of two texts."""
    n = min(len(one), len(other))
    return n if one[:n] == other[:n] else next(i for i in range(n) if one[i] != other[i])
