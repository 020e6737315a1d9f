"""Random numbers per example, reproducible after a resume.

They are a pure function of (seed, epoch, example).

The noise of an example is new in every epoch and the same in a resumed run, whatever batch it is in, so batches may be split
or regrouped. As in `bucket`, only raw integers are drawn: NumPy guarantees their stream.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


class Rng:
    """A random stream that is determined by a seed and up to two numbers."""

    def __init__(self, seed: int, *place: int) -> None:
        counter = np.zeros(4, np.uint64)  # the first two words count the draws
        counter[2 : 2 + len(place)] = place
        self._raw = np.random.Philox(key=seed, counter=counter)

    def integer(self, n: int) -> int:
        """Return a number from 0 to n - 1."""
        return int(self._raw.random_raw()) % n

    def bernoulli(self, p: float) -> bool:
        """Return True with probability `p`."""
        return float(self.uniform(1)[0]) < p

    def uniform(self, n: int) -> NDArray[np.float64]:
        """Return n numbers in [0, 1)."""
        return np.asarray(self._raw.random_raw(n) >> np.uint64(11)) * 2.0**-53

    def choice(self, choices: NDArray[np.int64], n: int) -> NDArray[np.int64]:
        """Return n of the choices, drawn uniformly with replacement."""
        return choices[(self._raw.random_raw(n) % np.uint64(len(choices))).astype(np.int64)]

    def permutation(self, n: int) -> NDArray[np.int64]:
        """Return the numbers below n in random order."""
        return np.argsort(self._raw.random_raw(n), kind="stable")


@dataclass(frozen=True)
class ExampleRng:
    """The random streams of one epoch. Validation always uses the defaults, so that its scores can be compared."""

    seed: int = 0
    epoch: int = 0

    def of(self, example: int) -> Rng:
        """Return the random stream of one example in this epoch."""
        return Rng(self.seed, example, self.epoch)
