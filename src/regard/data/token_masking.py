"""Masked language modelling (BERT, Devlin et al. 2018): which tokens a model must guess, and what it sees instead of them.

    of the chosen    80 %    the mask
                     10 %    any token
                     10 %    the token itself, so that what is not masked cannot be trusted either

With `whole_words`, whole words are chosen: a model that sees `phil ##am [MASK]` need only know how to spell.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from regard.data.example_rng import Rng
from regard.errors import SpecError
from regard.spec import Spec, spec

Ids = NDArray[np.int64]


@spec
class Masking(Spec):
    """How tokens are chosen, and what becomes of them."""

    rate: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """The part of the tokens a model must guess, at least one."""
    mask: Annotated[float, Field(ge=0, le=1)] = 0.8
    random: Annotated[float, Field(ge=0, le=1)] = 0.1
    """What is neither masked nor replaced stays."""
    whole_words: bool = False
    """All tokens of a word, or none."""

    def __post_init__(self) -> None:
        if self.mask + self.random > 1:
            raise SpecError(f"mask and random are parts of the chosen tokens, got {self.mask} and {self.random}")

    def choose(self, free: Ids, joined: NDArray[np.bool_] | None, rng: Rng) -> Ids:
        """Some of the places `free` to be chosen, in order; `joined` says which of them go on with the word before."""
        most = max(round(len(free) * self.rate), 1)
        if joined is None:
            return free[np.sort(rng.permutation(len(free))[:most])]
        words = np.split(np.arange(len(free)), np.flatnonzero(~joined[1:]) + 1)
        chosen, count = list[Ids](), 0
        for i in rng.permutation(len(words)).tolist():
            if count + len(words[i]) <= most:
                chosen.append(words[i])
                count += len(words[i])
        chosen = chosen or [min(words, key=len)]  # every word is longer than what may be chosen
        return free[np.sort(np.concatenate(chosen))]

    def apply(self, ids: Ids, mask: int, tokens: Ids, rng: Rng) -> Ids:
        """What is seen instead of the chosen `ids`; a swap is any of `tokens`."""
        draw, other = rng.uniform(len(ids)), rng.choice(tokens, len(ids))
        return np.where(draw < self.mask, mask, np.where(draw < self.mask + self.random, other, ids))
