"""Sampling: temperature, top-k, top-p and min-p.

Top-p is by Holtzman et al. (2019), min-p by Nguyen et al. (2024). The drawn tokens are a pure function of (seed, input index,
step): the same input gives the same output in any batch.
"""

from __future__ import annotations

import dataclasses
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.decode.search import Search


@dataclasses.dataclass(frozen=True)
class Sampler:
    """Draws tokens with the random numbers of each row, which depend on its seed, its number and the step."""

    search: Search
    numbers: Tensor | None = None
    """The number of each row (rows,); None: its index."""
    seeds: Tensor | None = None
    """The seed of each row (rows,); None: that of the search."""
    first_steps: Tensor | int = 0
    """Number of tokens of each row that were drawn before."""

    def __call__(self, log_probs: Tensor, index: Tensor, step: Tensor | int) -> Tensor:
        search = self.search
        probs = truncate(log_probs / search.temperature, top_k=search.top_k, top_p=search.top_p, min_p=search.min_p)
        number = index if self.numbers is None else self.numbers[index]
        seed = search.seed if self.seeds is None else self.seeds[index].cpu().numpy()
        step = step + (self.first_steps[index] if isinstance(self.first_steps, Tensor) else self.first_steps)
        at = step.cpu().numpy() if isinstance(step, Tensor) else step
        draw = torch.from_numpy(draw_uniform(seed, number.cpu().numpy(), at)).to(probs.device)
        below = probs.to(torch.float64).cumsum(-1)
        return (below <= (draw * below[:, -1]).unsqueeze(1)).sum(-1).clamp(max=probs.shape[1] - 1)

    def join(self, index: Tensor, other: Self, more: Tensor) -> Self:
        """The rows `index` of this sampler, followed by rows `more` of another."""
        sides = (self._select(index), other._select(more))
        return dataclasses.replace(
            self,
            numbers=torch.cat([numbers for numbers, _, _ in sides]),
            seeds=torch.cat([seeds for _, seeds, _ in sides]),
            first_steps=torch.cat([steps for _, _, steps in sides]),
        )

    def _select(self, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The numbers, seeds and first steps of these rows."""
        numbers = index if self.numbers is None else self.numbers[index]
        seeds = torch.full_like(index, self.search.seed) if self.seeds is None else self.seeds[index]
        steps = self.first_steps
        return numbers, seeds, steps[index] if isinstance(steps, Tensor) else torch.full_like(index, steps)


def make_sampler(search: Search) -> Sampler:
    """A `choose` function for `greedy_search` that draws tokens."""
    return Sampler(search)


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


def draw_uniform(
    seed: int | NDArray[np.int64], index: NDArray[np.int64], step: int | NDArray[np.int64]
) -> NDArray[np.float64]:
    """One number in [0, 1) per index, by mixing (seed, index, step) with splitmix64 (Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        z = np.asarray(index, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        for word in (seed, step):
            given = np.uint64(word & 0xFFFFFFFFFFFFFFFF) if isinstance(word, int) else word.astype(np.uint64)
            z = _mix(z + given + np.uint64(0x9E3779B97F4A7C15))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
