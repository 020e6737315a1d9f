"""What to call examples in a message, so that a user finds them in the data: a number, and how the text goes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from regard.text import Tokenizer

EXCERPT = 60
"""So many characters of a text are enough to look for it."""


def numbered(indices: NDArray[np.int64]) -> list[str]:
    """Examples by their numbers, counted from 0."""
    return [f"example {' '.join(map(str, np.atleast_1d(index)))}" for index in indices]


def by_text(indices: NDArray[np.int64], rows: Iterable[NDArray[np.int32]], tokenizer: Tokenizer) -> list[str]:
    """Examples by their numbers and the beginnings of their texts."""
    texts = (excerpt(tokenizer.decode(ids.tolist())) for ids in rows)
    return [f"{number} {text}" for number, text in zip(numbered(indices), texts, strict=True)]


def excerpt(text: str) -> str:
    """The beginning of a text, in quotes."""
    return repr(text if len(text) <= EXCERPT else text[:EXCERPT] + "…")
