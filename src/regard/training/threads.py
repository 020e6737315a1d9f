"""One batch on several threads: each takes some of its rows through forward and backward pass, and the gradients add up.

Threads that share every operator wait for one another after each of them, a thousand times a step; threads that share the
batch meet once. Each draws its dropout from a stream of its own, and gradients are summed in a fixed order, so a step is a
function of the seed whoever runs first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.nn.core.rng import seeded

ROOM = 512
"""Padded tokens a thread should have for itself: with fewer, the work between operators outweighs them."""
T = TypeVar("T")
Grads = list[Tensor | None]


class Shards:
    """A few threads that divide the rows of a batch; one of them is the plain way."""

    def __init__(self, count: int, threads: int) -> None:
        self.count = count
        if count > 1:
            self.pool = ThreadPoolExecutor(count, "shard", torch.set_num_threads, (max(threads // count, 1),))

    @staticmethod
    def fitting(threads: int, tokens: int, device: str) -> Shards:
        """As many as there are threads, if batches of `tokens` give each enough to do."""
        return Shards(max(min(threads, tokens // ROOM), 1) if device == "cpu" else 1, threads)

    def run(
        self, net: nn.Module, work: Callable[[T], tuple[Tensor, float]], parts: Sequence[tuple[T, int | None]]
    ) -> float:
        """Add the gradients of what `work` gives for each part (a loss, and a number) to the weights; the numbers' sum.

        With each part goes the seed of its chance; without one, it draws from the common stream.
        """
        wanted = [p for p in net.parameters() if p.requires_grad]

        def one(part: tuple[T, int | None]) -> tuple[Grads, float]:
            with nullcontext() if part[1] is None else seeded(part[1]):
                loss, number = work(part[0])
                return list(torch.autograd.grad(loss, wanted, allow_unused=True)), number

        total = 0.0
        for grads, number in (map if self.count == 1 else self.pool.map)(one, parts):
            _add(wanted, grads)
            total += number
        return total


def split(rows: NDArray[np.int64], count: int) -> list[NDArray[np.int64]]:
    """The rows of a batch in `count` parts, or in as many as there are rows."""
    return [part for part in np.array_split(rows, count) if len(part)]


@torch.no_grad()
def _add(parameters: Sequence[nn.Parameter], grads: Grads) -> None:
    """Add gradients to what the parameters have."""
    for parameter, grad in zip(parameters, grads, strict=True):
        if grad is not None:
            parameter.grad = grad if parameter.grad is None else parameter.grad.add_(grad)
