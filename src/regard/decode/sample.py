"""Sampling: temperature, top-k, top-p and min-p.

Top-p is by Holtzman et al. (2019), min-p by Nguyen et al. (2024). The drawn tokens are a pure function of (seed, input index,
step): the same input gives the same output in any batch.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.decode.greedy import ChooseToken
from regard.decode.search import Search


def make_sampler(search: Search) -> ChooseToken:
    """A `choose` function for `greedy_search` that draws tokens."""

    def choose(log_probs: Tensor, index: Tensor, step: int) -> Tensor:
        probs = truncate(log_probs / search.temperature, top_k=search.top_k, top_p=search.top_p, min_p=search.min_p)
        draw = torch.from_numpy(draw_uniform(search.seed, index.cpu().numpy(), step)).to(probs.device)
        below = probs.to(torch.float64).cumsum(-1)
        return (below <= (draw * below[:, -1]).unsqueeze(1)).sum(-1).clamp(max=probs.shape[1] - 1)

    return choose


def truncate(logits: Tensor, *, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> Tensor:
    """Probabilities without the unlikely tail, not renormalized. The most likely token always stays."""
    probs = logits.softmax(-1)
    if 0 < top_k < probs.shape[-1]:
        probs = probs.masked_fill(probs < probs.topk(top_k).values[..., -1:], 0.0)
    if top_p < 1.0:
        ranked, order = probs.sort(-1, descending=True)
        mass = ranked.cumsum(-1) / ranked.sum(-1, keepdim=True)
        surplus = mass - ranked / ranked.sum(-1, keepdim=True) >= top_p
        probs = probs.masked_fill(torch.zeros_like(surplus).scatter(-1, order, surplus), 0.0)
    if min_p > 0.0:
        probs = probs.masked_fill(probs < min_p * probs.amax(-1, keepdim=True), 0.0)
    return probs


def draw_uniform(seed: int, index: NDArray[np.int64], step: int) -> NDArray[np.float64]:
    """One number in [0, 1) per index, by mixing (seed, index, step) with splitmix64 (Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        z = np.asarray(index, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        for word in (seed, step):
            z = _mix(z + np.uint64(word & 0xFFFFFFFFFFFFFFFF) + np.uint64(0x9E3779B97F4A7C15))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
