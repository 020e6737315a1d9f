"""A text longer than a model reads, as pieces that it can read: sentences; of long sentences words, of long words letters.

Nothing is lost but spaces at the ends of pieces, and no piece has more tokens than there is room for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice

from regard.text.tokenizer import Tokenizer

_STOP = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])\s*")
_WORD = re.compile(r"\S+")
_MANY = 1024  # texts whose tokens are counted at once


def split_text(tokenizer: Tokenizer, text: str, room: int) -> Iterator[str]:
    """The pieces of a text in order, each of at most `room` tokens, unless a single letter has more."""
    for sentence, tokens in _count_tokens(tokenizer, (part for part in _STOP.split(text) if part.strip())):
        if tokens <= room:
            yield sentence.strip()
        else:
            yield from _split_sentence(tokenizer, sentence, room)


def _split_sentence(tokenizer: Tokenizer, sentence: str, room: int) -> Iterator[str]:
    """As many words in a piece as there is room for; a space may be a token."""
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
    """Stretches of a word of so many letters, halved until they fit."""
    for part, tokens in _count_tokens(tokenizer, (word[i : i + step] for i in range(0, len(word), step))):
        if tokens <= room or len(part) == 1:
            yield part
        else:
            yield from _split_word(tokenizer, part, room, -(-len(part) // 2))


def _count_tokens(tokenizer: Tokenizer, texts: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Texts with how many tokens they have."""
    rest = iter(texts)
    while some := list(islice(rest, _MANY)):
        yield from zip(some, map(len, tokenizer.encode_all(some)), strict=True)
