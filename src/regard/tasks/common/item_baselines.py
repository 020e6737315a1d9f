"""Baselines of recommenders: popularity, item-kNN.

    popularity   the same ranking for everybody: how often an item occurs
    item-kNN     Σ over the items of the history of the cosine of two items, where an item is the set of users who had it and
                 only the `NEIGHBORS` nearest of each item count (Sarwar et al. 2001)

Both read the histories alone, never a target.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from regard.data.ragged import Ragged

NEIGHBORS = 100
BLOCK = 1 << 22
"""Similarities in memory at once."""
ScoreUsers = Callable[[np.ndarray], Tensor]
"""Scores of all tokens (users, items + 1) for these users."""


def score_popularity(histories: Ragged, items: int) -> ScoreUsers:
    """Scores by the number of occurrences; tokens are items from 1."""
    counts = torch.from_numpy(np.bincount(histories.ids + 1, minlength=items + 1)).float()
    return lambda users: counts.expand(len(users), -1)


def score_item_knn(histories: Ragged, items: int, neighbors: int = NEIGHBORS) -> ScoreUsers:
    """Scores by similarity to the items of each user's history."""
    near, cosine = find_neighbors(histories, items, neighbors)

    def score(users: np.ndarray) -> Tensor:
        some = histories.take(users)
        rows = torch.from_numpy(np.repeat(np.arange(len(users)), some.lengths))
        own = torch.from_numpy(some.ids.astype(np.int64))
        out = torch.zeros(len(users), items + 1)
        places = (rows[:, None] * (items + 1) + near[own] + 1).flatten()
        out.view(-1).index_add_(0, places, cosine[own].flatten())
        return out

    return score


def find_neighbors(histories: Ragged, items: int, neighbors: int) -> tuple[Tensor, Tensor]:
    """The nearest items of each item (items, k), and their cosines; 0 where fewer have a user in common."""
    owner = np.repeat(np.arange(len(histories), dtype=np.int64), histories.lengths)
    owner, item = np.divmod(np.unique(owner * items + histories.ids), items)  # each user counts once
    ends = np.searchsorted(owner, np.arange(1, len(histories) + 1))
    sets = Ragged(item.astype(np.int32), ends)
    weight = 1 / np.sqrt(np.maximum(np.bincount(item, minlength=items), 1))
    by_item = np.argsort(item, kind="stable")
    starts = np.searchsorted(item[by_item], np.arange(items + 1))
    count, step = min(neighbors, items), max(BLOCK // items, 1)
    near, cosine = torch.empty(items, count, dtype=torch.long), torch.empty(items, count)
    for start in range(0, items, step):
        stop = min(start + step, items)
        pairs = by_item[starts[start] : starts[stop]]
        others = sets.take(owner[pairs])  # all that the owners of these items had
        mine = np.repeat(item[pairs], others.lengths)
        shared = np.bincount(
            (mine - start) * items + others.ids, weight[mine] * weight[others.ids], minlength=(stop - start) * items
        ).reshape(stop - start, items)
        shared[np.arange(stop - start), np.arange(start, stop)] = 0.0  # no item is its own neighbor
        cosine[start:stop], near[start:stop] = torch.from_numpy(shared).float().topk(count)
    return near, cosine
