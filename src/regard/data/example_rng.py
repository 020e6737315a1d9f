"""Chance that is a pure function of (seed, epoch, example): noise is new in every pass and the same in a resumed run.

Whichever batch an example lands in, and whoever its neighbours are, its noise in that epoch is the same; so batches may be
split or put together in other ways. As in `bucket`, we draw raw integers only, whose stream numpy promises for ever.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


class Rng:
    """Random whole numbers from one place of the stream."""

    def __init__(self, seed: int, *place: int) -> None:
        counter = np.zeros(4, np.uint64)  # the first two words count what is drawn
        counter[2 : 2 + len(place)] = place
        self._raw = np.random.Philox(key=seed, counter=counter)

    def integer(self, n: int) -> int:
        """A number from 0 to n - 1."""
        return int(self._raw.random_raw()) % n

    def bernoulli(self, share: float) -> bool:
        """True so often."""
        return float(self.uniform(1)[0]) < share

    def uniform(self, n: int) -> NDArray[np.float64]:
        """Numbers from 0 up to 1."""
        return np.asarray(self._raw.random_raw(n) >> np.uint64(11)) * 2.0**-53

    def choice(self, choices: NDArray[np.int64], n: int) -> NDArray[np.int64]:
        """So many of the choices, each as likely as any other every time."""
        return choices[(self._raw.random_raw(n) % np.uint64(len(choices))).astype(np.int64)]

    def permutation(self, n: int) -> NDArray[np.int64]:
        """The numbers below n in random order."""
        return np.argsort(self._raw.random_raw(n), kind="stable")


@dataclass(frozen=True)
class ExampleRng:
    """The noise of one epoch. Validation has the default for ever, so that its scores can be compared."""

    seed: int = 0
    epoch: int = 0

    def of(self, example: int) -> Rng:
        """The random rng of one example in this epoch."""
        return Rng(self.seed, example, self.epoch)
