"""Word dropout (Sennrich & Zhang 2019): tokens that a model reads are now and then hidden, so that it relies on no single one.

A hidden token reads as the unknown symbol. Marks and tags are never hidden, and what a model should write never changes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from regard.data.example_rng import Bits
from regard.data.ragged import Ragged
from regard.text import Tokenizer


def hidden(rows: Ragged, tokenizer: Tokenizer, share: float, bits: Sequence[Bits]) -> Ragged:
    """The same texts, each ordinary token hidden with probability `share`, by the bits of its text."""
    drawn = np.concatenate([own.shares(n) for own, n in zip(bits, rows.lengths.tolist(), strict=True)])
    chosen = (drawn < share) & ~np.isin(rows.ids, [*tokenizer.marks])
    return dataclasses.replace(rows, ids=np.where(chosen, np.int32(tokenizer.unk), rows.ids))
