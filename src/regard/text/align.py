"""Which token stands for which word or letter of a text, so that labels of the one can be learned on the other.

words     Mr   Unwin  came        a word's label goes to its first token; what follows in the word has none
tokens    ▁Mr  ▁Un win  ▁came
first     0    1        3
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from regard.errors import DataError
from regard.text.tokenizer import Tokenizer

Place = tuple[int, int]
"""Where a word or letter begins in its text, and where it ends."""


def align(
    tokenizer: Tokenizer, texts: Sequence[str], places: Sequence[Sequence[Place]]
) -> list[tuple[list[int], list[int]]]:
    """For each text its tokens, and for each of its places the first token there.

    Where a tokenizer makes nothing of what stands in a place, that is one unknown token.
    """
    cut = tokenizer.encode_all(texts)
    spans = [found.offsets for found in tokenizer.core.encode_batch(list(texts), add_special_tokens=False)]
    return [_aligned(tokenizer, *each) for each in zip(texts, cut, spans, places, strict=True)]


def _aligned(
    tokenizer: Tokenizer, text: str, ids: list[int], spans: Sequence[Place], places: Sequence[Place]
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
                    f"a token holds {text[slice(*spans[t])]!r}, which has several labels; cut text finer (tokenizer: chars)"
                )
            out.append(ids[t])
            t += 1
    return out + ids[t:], first
