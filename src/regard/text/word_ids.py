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
BLOCK, CONTEXT = 32, 8
"""Tokens that are decoded together to find where each ends, and tokens before them that influence the result."""


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


def group_tokens(tokenizer: Tokenizer, rows: Sequence[Sequence[int]]) -> list[TokenizedWords]:
    """Group tokens that a model wrote into words; they may differ from the tokenization of their text."""
    found = zip(rows, tokenizer.decode_all(rows), strict=True)
    return [
        _assign_words(text, list(ids), list(pairwise([0, *_find_ends(tokenizer, ids, text)]))) for ids, text in found
    ]


def _find_ends(tokenizer: Tokenizer, ids: Sequence[int], text: str) -> list[int]:
    """Return how many characters of its text each token completes.

    A token is decoded with its block and a few tokens before it, which costs less than with all of them, if that gives what
    the whole gives; otherwise with all of them.
    """
    starts, ends = range(0, len(ids), BLOCK), list[int]()
    for start, (before, after) in zip(
        starts, pairwise([*tokenizer.decode_all([ids[:i] for i in starts]), text]), strict=True
    ):
        context, block = ids[max(start - CONTEXT, 0) : start], ids[start : start + BLOCK]
        head, *found = tokenizer.decode_all([[*context, *block[:n]] for n in range(len(block) + 1)])
        if all(one.startswith(head) for one in found) and before + found[-1][len(head) :] == after:
            found = [before + one[len(head) :] for one in found]
        else:
            found = tokenizer.decode_all([ids[: start + n + 1] for n in range(len(block))])
        ends += [_common_prefix(one, text) for one in found]
    return ends


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
