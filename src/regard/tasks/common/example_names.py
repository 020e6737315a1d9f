"""Names of examples in messages.

A number and the beginning of the text, so that a user finds the example in the data.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from regard.text import Tokenizer

EXCERPT = 60
"""Number of characters that are enough to find a text."""


def number_examples(indices: NDArray[np.int64]) -> list[str]:
    """Examples by their numbers, counted from 0."""
    return [f"example {' '.join(map(str, index.reshape(-1)))}" for index in indices]


def quote_examples(indices: NDArray[np.int64], rows: Iterable[NDArray[np.int32]], tokenizer: Tokenizer) -> list[str]:
    """Examples by their numbers and the beginnings of their texts."""
    texts = (quote_excerpt(tokenizer.decode(ids.tolist())) for ids in rows)
    return [f"{number} {text}" for number, text in zip(number_examples(indices), texts, strict=True)]


def quote_excerpt(text: str) -> str:
    """The beginning of a text, in quotes."""
    return repr(text if len(text) <= EXCERPT else text[:EXCERPT] + "…")
