"""Attention across layers: rollout and flow.

Abnar & Zuidema 2020. A layer passes on half of what a token was (the residual) and half of what it attends to.

rollout   the product of these matrices: how much of each input token is in each position
flow      the largest flow from a position back to an input token, where weights are capacities
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor


def add_residual(weights: Tensor) -> Tensor:
    """Weights (h, n, n) of a layer, averaged over heads, half of them the residual connection; rows sum to one."""
    mean = weights.double().mean(0)
    mixed = mean / 2 + torch.eye(mean.shape[0], dtype=torch.double) / 2
    return mixed / mixed.sum(-1, keepdim=True)


def rollout(layers: Sequence[Tensor]) -> Tensor:
    """(n, n): row i holds the shares of the input tokens in position i after all layers. `layers` are weights (h, n, n)."""
    out = add_residual(layers[0])
    for weights in layers[1:]:
        out = add_residual(weights) @ out
    return out


def flow(layers: Sequence[Tensor], position: int) -> Tensor:
    """(n,): the maximum flow from a position of the last layer to each input token."""
    mixed = [add_residual(weights) for weights in layers]
    n = mixed[0].shape[0]
    capacity: dict[int, dict[int, float]] = {}
    for level, matrix in enumerate(mixed):
        for i, row in enumerate(matrix.tolist()):
            above = (level + 1) * n + i
            for j, value in enumerate(row):
                if value > 0:
                    capacity.setdefault(above, {})[level * n + j] = value
    begin = len(mixed) * n + position
    return torch.tensor([_max_flow(capacity, begin, token) for token in range(n)], dtype=torch.double)


def _max_flow(capacity: dict[int, dict[int, float]], begin: int, end: int, least: float = 1e-12) -> float:
    """The maximum flow by shortest augmenting paths (Edmonds & Karp 1972)."""
    left: dict[int, dict[int, float]] = {node: dict(nexts) for node, nexts in capacity.items()}
    total = 0.0
    while True:
        before: dict[int, int] = {begin: begin}
        queue = deque([begin])
        while queue and end not in before:
            node = queue.popleft()
            for following, room in left.get(node, {}).items():
                if room > least and following not in before:
                    before[following] = node
                    queue.append(following)
        if end not in before:
            return total
        path = [end]
        while path[-1] != begin:
            path.append(before[path[-1]])
        steps = list(zip(path[1:], path, strict=False))
        room = min(left[a][b] for a, b in steps)
        for a, b in steps:
            left[a][b] -= room
            left.setdefault(b, {})[a] = left.get(b, {}).get(a, 0.0) + room
        total += room
