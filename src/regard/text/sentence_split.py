"""Split long texts into pieces that a model can read.

Texts are split into sentences, long sentences into words, long words into letters. Only spaces at the ends of pieces are lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice

from regard.text.tokenizer import Tokenizer

_STOP = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])\s*")
_WORD = re.compile(r"\S+")
_MANY = 1024  # number of texts tokenized at once


def split_to_fit(tokenizer: Tokenizer, text: str, room: int) -> Iterator[str]:
    """Yield the pieces of a text in order, each of at most `room` tokens, unless a single letter has more."""
    for sentence, tokens in _count_tokens(tokenizer, (part for part in _STOP.split(text) if part.strip())):
        if tokens <= room:
            yield sentence.strip()
        else:
            yield from _split_sentence(tokenizer, sentence, room)


def _split_sentence(tokenizer: Tokenizer, sentence: str, room: int) -> Iterator[str]:
    """Yield pieces with as many words as fit; a space may be a token."""
    held, used = list[str](), 0
    for word, tokens in _count_tokens(tokenizer, (found[0] for found in _WORD.finditer(sentence))):
        if held and used + tokens + 1 > room:
            yield " ".join(held)
            held, used = [], 0
        if tokens <= room:
            held, used = [*held, word], used + tokens + bool(held)
        else:
            yield from _split_word(tokenizer, word, room, max(room, 1))
    if held:
        yield " ".join(held)


def _split_word(tokenizer: Tokenizer, word: str, room: int, step: int) -> Iterator[str]:
    """Yield parts of a word of `step` letters, halved until they fit."""
    for part, tokens in _count_tokens(tokenizer, (word[i : i + step] for i in range(0, len(word), step))):
        if tokens <= room or len(part) == 1:
            yield part
        else:
            yield from _split_word(tokenizer, part, room, -(-len(part) // 2))


def _count_tokens(tokenizer: Tokenizer, texts: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield texts with their numbers of tokens."""
    rest = iter(texts)
    while some := list(islice(rest, _MANY)):
        yield from zip(some, map(len, tokenizer.encode_all(some)), strict=True)
