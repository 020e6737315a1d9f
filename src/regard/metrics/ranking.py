"""Scores of rankings: HR@k, NDCG@k and MRR.

Each test item has one target, and `rank` is the number of candidates before it, ties counted half:

    HR@k     1 if rank < k, else 0                      (hit rate; recall@k with one target)
    NDCG@k   1 / log₂(rank + 2) if rank < k, else 0
    MRR      1 / (rank + 1)

Names that begin with `sampled_` rank the target among a few sampled candidates, the others among all items.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CUTOFFS = (1, 5, 10, 20, 50, 100)
SAMPLED = "sampled_"
NAMES = tuple(
    f"{prefix}{name}"
    for prefix in ("", SAMPLED)
    for name in (*(f"{kind}@{k}" for kind in ("ndcg", "hr") for k in CUTOFFS), "mrr")
)
"""The names of all scores."""


def gain_of_ranks(ranks: NDArray[np.float64], prefix: str = "") -> dict[str, NDArray[np.float64]]:
    """Every score of each rank."""
    discounted, out = 1 / np.log2(ranks + 2), dict[str, NDArray[np.float64]]()
    for k in CUTOFFS:
        hit = ranks < k
        out[f"{prefix}ndcg@{k}"] = np.where(hit, discounted, 0.0)
        out[f"{prefix}hr@{k}"] = hit.astype(np.float64)
    return out | {f"{prefix}mrr": 1 / (ranks + 1)}
