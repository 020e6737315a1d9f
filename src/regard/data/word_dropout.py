"""Word dropout: random tokens become the unknown token.

Sennrich & Zhang 2019. Only what a model reads changes, not what it should write. Special tokens and tags are never dropped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from regard.data.example_rng import Rng
from regard.data.ragged import Ragged
from regard.text import Tokenizer


def drop_words(rows: Ragged, tokenizer: Tokenizer, share: float, rngs: Sequence[Rng]) -> Ragged:
    """Return the texts with each ordinary token replaced by `<unk>` with probability `share`."""
    drawn = np.concatenate([own.uniform(n) for own, n in zip(rngs, rows.lengths.tolist(), strict=True)])
    chosen = (drawn < share) & ~np.isin(rows.ids, [*tokenizer.marks])
    return dataclasses.replace(rows, ids=np.where(chosen, np.int32(tokenizer.unk), rows.ids))
