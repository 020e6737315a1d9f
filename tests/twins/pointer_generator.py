"""The pointer-generator of See et al. 2017, one pair and one step at a time, equation by equation; the oracle of `pointer.py`.

Plain tensors in a dictionary, named as the head names them.
"""

from __future__ import annotations

import torch
from torch import Tensor

Weights = dict[str, Tensor]


def write(
    w: Weights, table: Tensor, states: Tensor, embedded: Tensor, memory: Tensor, source: list[int], *, coverage: bool
) -> tuple[Tensor, Tensor]:
    """P(w) of every step (n, v), and the coverage loss of every step (n,)."""
    covered, out, costs = torch.zeros(len(source), dtype=states.dtype), [], []
    for s, x in zip(states, embedded, strict=True):
        scores = []
        for i, h in enumerate(memory):
            q, k = w["query.weight"] @ s + w["query.bias"], w["key.weight"] @ h
            if "v.weight" in w:  # eq. 1, and eq. 11 with coverage
                inner = q + k + (w["cover"] * covered[i] if coverage else 0)
                scores.append(w["v.weight"][0] @ torch.tanh(inner))
            else:
                scores.append(q @ k / len(q) ** 0.5 + (w["cover"][0] * covered[i] if coverage else 0))
        a = torch.softmax(torch.stack(scores), 0)  # eq. 2
        context = sum((a[i] * h for i, h in enumerate(memory)), torch.zeros_like(memory[0]))  # eq. 3
        costs.append(torch.minimum(a, covered).sum())  # eq. 12
        covered = covered + a  # eq. 10
        p_gen = torch.sigmoid(w["gate.weight"][0] @ torch.cat([context, s, x]) + w["gate.bias"][0])  # eq. 8
        vocabulary = torch.softmax(w.get("weight", table) @ s * w.get("scale", 1.0) + w.get("bias", 0), 0)
        mixed = p_gen * vocabulary
        for i, token in enumerate(source):  # eq. 9
            mixed = mixed + (1 - p_gen) * a[i] * torch.nn.functional.one_hot(torch.tensor(token), len(mixed))
        out.append(mixed)
    return torch.stack(out), torch.stack(costs)
