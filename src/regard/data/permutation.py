"""Random permutations that are computed on access.

The numbers below n in random order, any part of them without the rest: a billion examples are shuffled in no memory.
Numbers of k bits are multiplied by an odd number, shifted by a constant and mixed with their own upper half; each of these
steps can be undone, so no two numbers meet. A result of n or more goes through the steps again until it is below n.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ROUNDS = 5
"""Enough that neighbors become strangers."""


class Permutation:
    """The numbers below `n` in an order determined by the seed and some further numbers."""

    def __init__(self, n: int, seed: int, *place: int) -> None:
        self._n, bits = n, max((n - 1).bit_length(), 2)
        raw = np.random.Philox(np.random.SeedSequence(seed, spawn_key=place)).random_raw((ROUNDS, 2))
        self._mask, self._shift = np.uint64((1 << bits) - 1), np.uint64((bits + 1) // 2)
        self._steps = [(factor | np.uint64(1), shift) for factor, shift in raw]

    def __len__(self) -> int:
        return self._n

    def take(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the numbers at the positions from `start` up to `stop`."""
        out = self._mix(np.arange(start, min(stop, self._n), dtype=np.uint64))
        while len(beyond := np.flatnonzero(out >= self._n)):
            out[beyond] = self._mix(out[beyond])
        return out.astype(np.int64)

    def _mix(self, x: NDArray[np.uint64]) -> NDArray[np.uint64]:
        for factor, add in self._steps:
            x = (x * factor + add) & self._mask
            x = x ^ (x >> self._shift)
        return x
