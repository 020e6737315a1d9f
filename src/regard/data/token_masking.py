"""Token masking for masked language modeling, as in BERT.

Of the tokens to predict (Devlin et al. 2018), the model sees:

    80 %    the mask
    10 %    a random token
    10 %    the token itself, so that tokens without a mask cannot be trusted either

With `whole_words`, all tokens of a word are chosen: after `phil ##am [MASK]` a model only needs to know how to spell.
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
    """Shares of tokens that are chosen, and of their replacements."""

    rate: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """Share of the tokens to predict; at least one token."""
    mask: Annotated[float, Field(ge=0, le=1)] = 0.8
    """Share of the chosen tokens that are replaced by the mask."""
    random: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share of the chosen tokens that are replaced by a random token; the others are unchanged."""
    whole_words: bool = False
    """Choose all tokens of a word, or none."""

    def __post_init__(self) -> None:
        if self.mask + self.random > 1:
            raise SpecError(f"mask and random should add up to at most 1, got {self.mask} and {self.random}")

    def choose(self, free: Ids, joined: NDArray[np.bool_] | None, rng: Rng) -> Ids:
        """Choose some of the positions `free`, in order; `joined` says which of them continue the previous word."""
        most = max(round(len(free) * self.rate), 1)
        if joined is None:
            return free[np.sort(rng.permutation(len(free))[:most])]
        words = np.split(np.arange(len(free)), np.flatnonzero(~joined[1:]) + 1)
        chosen, count = list[Ids](), 0
        for i in rng.permutation(len(words)).tolist():
            if count + len(words[i]) <= most:
                chosen.append(words[i])
                count += len(words[i])
        chosen = chosen or [min(words, key=len)]  # every word is longer than the budget
        return free[np.sort(np.concatenate(chosen))]

    def apply(self, ids: Ids, mask: int, tokens: Ids, rng: Rng) -> Ids:
        """Return what the model sees instead of the chosen `ids`; random tokens are drawn from `tokens`."""
        draw, other = rng.uniform(len(ids)), rng.choice(tokens, len(ids))
        return np.where(draw < self.mask, mask, np.where(draw < self.mask + self.random, other, ids))
