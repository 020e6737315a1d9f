"""A made corpus with the lengths of short captions (Multi30k: 14 pieces of BPE on average): speed does not read the words."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from regard.data.bucket import Buckets
from regard.data.ragged import Ragged

VOCAB = 10_000


def corpus(pairs: int = 20_000, seed: int = 1) -> tuple[Ragged, Ragged]:
    """Sources and targets of related, log-normal lengths, with Zipf-like token ids from 4 on."""
    draw = np.random.Generator(np.random.PCG64(seed))
    source = np.clip(np.exp(draw.normal(2.6, 0.33, pairs)), 4, 60).round().astype(int)
    target = np.clip(source * np.exp(draw.normal(0.0, 0.15, pairs)), 4, 60).round().astype(int)
    return tuple(  # type: ignore[return-value]
        Ragged.of([np.minimum(draw.zipf(1.3, n) + 3, VOCAB - 1).astype(np.int32) for n in lengths])
        for lengths in (source, target)
    )


def bucketed(source: Ragged, target: Ragged, tokens: int) -> list[NDArray[np.int64]]:
    """Batches by length, as Regard makes them."""
    lengths = np.stack([source.lengths, target.lengths], 1) + 1
    return Buckets(lengths, tokens=tokens, seed=1).epoch(0)


def shuffled(source: Ragged, target: Ragged, tokens: int) -> list[NDArray[np.int64]]:
    """Batches of as many random pairs as give about `tokens` target tokens: what a collator does that is not told more."""
    rows = max(int(tokens / (target.lengths.mean() + 1)), 1)
    order = np.random.Generator(np.random.PCG64(2)).permutation(len(target))
    return [order[i : i + rows] for i in range(0, len(order) - rows, rows)]
