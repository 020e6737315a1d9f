"""Test items whose score can be taken of any selection.

Most scores are made of counts: BLEU of n-gram matches, accuracy of hits, perplexity of log-likelihoods and tokens. The
counts of each item are taken once; the score of a selection of items is a formula of their sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

Score = Callable[..., float]
"""A score of outputs against their references; of a metric that reads them, also of the sources."""
Formula = Callable[[NDArray[np.float64]], float]
"""A score of summed counts (k,)."""
LARGEST = 700.0
"""The largest loss whose exponential is still a number."""


class Items(Protocol):
    """Test items with one model's results on them."""

    def __len__(self) -> int: ...

    def score(self, indices: NDArray[np.int64] | None = None) -> float:
        """The score of these items, which may come several times; of all, if not given."""


@dataclass(frozen=True)
class CountedItems:
    """Counts of each item (items, k), and the score of their sums."""

    counts: NDArray[np.float64]
    formula: Formula

    def __len__(self) -> int:
        return len(self.counts)

    def score(self, indices: NDArray[np.int64] | None = None) -> float:
        if indices is None:
            return self.formula(self.counts.sum(0))
        return self.formula(np.bincount(indices, minlength=len(self.counts)).astype(np.float64) @ self.counts)


@dataclass(frozen=True)
class ScoredItems:
    """Texts of each item, for a score that is not made of counts. Each selection is scored anew, which is slow."""

    columns: tuple[Sequence[str], ...]
    """Outputs and references, perhaps sources."""
    function: Score

    def __len__(self) -> int:
        return len(self.columns[0])

    def score(self, indices: NDArray[np.int64] | None = None) -> float:
        chosen = range(len(self)) if indices is None else indices.tolist()
        return self.function(*([column[i] for i in chosen] for column in self.columns))


def count_items(rows: ArrayLike, formula: Formula) -> CountedItems:
    """Items from rows of counts."""
    table = np.asarray(rows, np.float64)
    return CountedItems(table.reshape(len(table), -1), formula)


def ratio(sums: NDArray[np.float64]) -> float:
    """The first count divided by the second: the mean loss of a token, for example."""
    return float(sums[0] / max(sums[1], 1.0))


def percentage(sums: NDArray[np.float64]) -> float:
    """The first count as a percentage of the second: accuracy, word error rate."""
    return 100.0 * ratio(sums)


def perplexity(sums: NDArray[np.float64]) -> float:
    """The exponential of the mean loss, from the summed loss (in nats) and the number of tokens."""
    return math.exp(min(ratio(sums), LARGEST))


def bits_per_byte(*, bytes_per_token: float, unknown_share: float) -> Formula:
    """Bits per byte of a text, from the summed loss (in nats) and the number of tokens.

    Bits of text are comparable where losses of tokens are not: between vocabularies. An unknown token tells nothing of the
    characters that it stands for, so each of its bytes costs 8 bits more; a model never gains by not knowing a text.

    bytes_per_token  bytes of the text for each token
    unknown_share    the share of those bytes that unknown tokens stand for
    """
    return lambda sums: ratio(sums) / math.log(2) / bytes_per_token + 8.0 * unknown_share
