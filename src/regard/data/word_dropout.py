"""Word dropout (Sennrich & Zhang 2019): tokens that a model reads are now and then hidden, so that it relies on no single one.

A hidden token reads as the unknown symbol. Marks and tags are never hidden, and what a model should write never changes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from regard.data.example_rng import Rng
from regard.data.ragged import Ragged
from regard.text import Tokenizer


def drop_words(rows: Ragged, tokenizer: Tokenizer, share: float, rngs: Sequence[Rng]) -> Ragged:
    """The same texts, each ordinary token hidden with probability `share`, by the rng of its text."""
    drawn = np.concatenate([own.uniform(n) for own, n in zip(rngs, rows.lengths.tolist(), strict=True)])
    chosen = (drawn < share) & ~np.isin(rows.ids, [*tokenizer.marks])
    return dataclasses.replace(rows, ids=np.where(chosen, np.int32(tokenizer.unk), rows.ids))
