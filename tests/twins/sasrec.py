"""SASRec written from its paper (Kang & McAuley 2018), one user at a time, with loops and no batch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

W = dict[str, Tensor]


def normalize(w: W, name: str, x: Tensor, eps: float = 1e-8) -> Tensor:
    """§3.3: α ⊙ (x − μ) / √(σ² + ε) + β."""
    mean = x.mean()
    spread = ((x - mean) ** 2).mean()
    return w[f"{name}.weight"] * (x - mean) / torch.sqrt(spread + eps) + w[f"{name}.bias"]


def sasrec(w: W, items: Sequence[int], *, depth: int, length: int) -> Tensor:
    """Scores (n, items) after each item; one head, no dropout. The newest item stands at the last position."""
    table, d = w["embed.weight"], w["embed.weight"].shape[1]
    n = len(items)
    x = [math.sqrt(d) * table[item] + w["embed.position.weight"][length - n + i] for i, item in enumerate(items)]
    for layer in range(depth):
        block = f"decoder.blocks.{layer}"

        def linear(name: str, v: Tensor, block: str = block) -> Tensor:
            return w[f"{block}.{name}.weight"] @ v + w[f"{block}.{name}.bias"]

        z = [normalize(w, f"{block}.mix_norm", v) for v in x]
        q, k, v = ([linear(f"mix.{role}", one) for one in z] for role in "qkv")
        for i in range(n):  # eq. 2 and 3: an item sees itself and those before it
            weights = torch.softmax(torch.stack([q[i] @ k[j] / math.sqrt(d) for j in range(i + 1)]), 0)
            x[i] = x[i] + sum(weights[j] * v[j] for j in range(i + 1))
        for i in range(n):  # eq. 4
            z_i = normalize(w, f"{block}.feed_norm", x[i])
            x[i] = x[i] + linear("feed.down", torch.relu(linear("feed.up", z_i)))
    return torch.stack([table @ normalize(w, "decoder.norm", v) for v in x])  # eq. 6, one table for both ends


def loss(scores: Tensor, targets: Sequence[int], negatives: Sequence[int]) -> Tensor:
    """Eq. 7, of one user: −Σ log σ(r of the target) + log(1 − σ(r of the negative))."""
    total = torch.zeros((), dtype=scores.dtype)
    for row, right, wrong in zip(scores, targets, negatives, strict=True):
        total = total - torch.log(torch.sigmoid(row[right])) - torch.log(1 - torch.sigmoid(row[wrong]))
    return total
