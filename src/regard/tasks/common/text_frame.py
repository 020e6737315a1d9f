"""Texts between the special tokens of their template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from regard.data.labels import BETWEEN
from regard.errors import DataError
from regard.text import Tokenizer

Pool = Literal["first", "mean"]
FramedText = tuple[list[int], list[int]]
"""The tokens of a text between its special tokens, and the segment of each."""


def frame_texts(tokenizer: Tokenizer, texts: Sequence[str], max_length: int, *, pair: bool = False) -> list[FramedText]:
    """Texts as rows of at most `max_length` tokens. If two texts share a row, the longer one is truncated first."""
    if not pair:
        room = max_length - len(tokenizer.frame([])[0])
        return [tokenizer.frame(ids[:room]) for ids in tokenizer.encode_all(texts)]
    parts = [_split_pair(text) for text in texts]
    room = max_length - len(tokenizer.frame([], [])[0])
    first, second = (tokenizer.encode_all([two[side] for two in parts]) for side in (0, 1))
    return [tokenizer.frame(*_truncate_pair(a, b, room)) for a, b in zip(first, second, strict=True)]


def count_tokens(tokenizer: Tokenizer, texts: Sequence[str], *, pair: bool = False) -> list[int]:
    """The number of tokens of each text without truncation."""
    return [len(ids) for ids, _ in frame_texts(tokenizer, texts, 1 << 40, pair=pair)]


def _split_pair(text: str) -> tuple[str, str]:
    first, tab, second = text.partition(BETWEEN)
    if not tab:
        raise DataError(f"this model reads pairs of texts with a tab between them, got {text[:80]!r}")
    return first, second


def _truncate_pair(a: list[int], b: list[int], room: int) -> tuple[list[int], list[int]]:
    over = len(a) + len(b) - room
    if over <= 0:
        return a, b
    gap = len(a) - len(b)
    level = min(over, abs(gap))  # first the longer one down to the other, then both
    rest = over - level
    from_a = (level if gap > 0 else 0) + rest // 2
    from_b = (level if gap < 0 else 0) + rest - rest // 2
    return a[: len(a) - from_a], b[: len(b) - from_b]
