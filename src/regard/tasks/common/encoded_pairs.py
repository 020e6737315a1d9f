"""Pairs of texts as token ids, in memory or on disk.

Pairs are encoded in chunks, by all cores, and kept in memory or in the folder of a run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.example_rng import ExampleRng
from regard.data.line_store import rows_at_once
from regard.data.mixture import mixture_shares
from regard.data.pairs import Pairs
from regard.data.ragged import Ragged
from regard.data.scratch import measure_lengths
from regard.data.token_store import InMemoryTokens, TokenStore, fill_store
from regard.errors import DataError

CHUNK = 1 << 14
"""Number of pairs encoded at a time."""

TokenizePairs = Callable[[Sequence[str], Sequence[str], str | None], tuple[Ragged, Ragged]]
"""A function from sources with a tag, and their targets, to the tokens of both."""


@dataclasses.dataclass(frozen=True)
class EncodedPairs:
    """Pairs as token ids, without start and end marks; sources begin with their language tag."""

    source: Ragged
    target: Ragged
    lengths: NDArray[np.integer[Any]]
    groups: NDArray[np.int64] | None = None
    shares: tuple[float, ...] | None = None
    left_out: int = 0
    rng: ExampleRng | None = None
    """Decides which tokens word dropout hides."""

    def __len__(self) -> int:
        return len(self.target)


def in_memory() -> InMemoryTokens:
    return InMemoryTokens(2)


def in_folder(folder: Path, **made_of: object) -> TokenStore:
    return TokenStore(folder, ("source", "target"), {**made_of, "chunk": CHUNK})


def encode_chunks(
    raw: Sequence[Pairs],
    work: Callable[[Pairs, slice], Sequence[Ragged]],
    store: TokenStore | InMemoryTokens,
    what: str = "texts",
) -> list[Ragged]:
    """Run `work` on all rows, in chunks, and within a chunk on as many rows as can be held; returns the columns."""
    jobs = [(pairs, first) for pairs in raw for first in range(0, len(pairs), CHUNK)]

    def run(job: tuple[Pairs, int]) -> Sequence[Ragged]:
        pairs, first = job
        last, step = min(first + CHUNK, len(pairs)), rows_at_once(pairs.source)
        parts = [work(pairs, slice(i, min(i + step, last))) for i in range(first, last, step)]
        return [Ragged.concat(column) for column in zip(*parts, strict=True)]

    return fill_store(store, jobs, run, f"tokens, chunks of {CHUNK:,} {what}")


def encode_pairs(
    raw: Sequence[Pairs],
    tokenize: TokenizePairs,
    store: TokenStore | InMemoryTokens,
    *,
    max_length: int,
    limit: int | None,
    temperature: float,
) -> EncodedPairs:
    """Token ids of all pairs, except those longer than `max_length` on either side, with a mark."""
    jobs = [(pairs, first) for pairs in raw for first in range(0, len(pairs), CHUNK)]

    def work(job: tuple[Pairs, int]) -> tuple[Ragged, Ragged]:
        pairs, some = job[0], slice(job[1], job[1] + CHUNK)
        source, target = tokenize(pairs.source[some], pairs.target[some], pairs.tag)
        short = np.flatnonzero(np.maximum(source.lengths, target.lengths) < max_length)
        return source.take(short), target.take(short)

    source, target = fill_store(store, jobs, work, f"tokens, chunks of {CHUNK:,} pairs")
    groups = [group for group, pairs in enumerate(raw) for _ in range(0, len(pairs), CHUNK)]
    counts = np.bincount(groups, store.rows, len(raw)).astype(np.int64)
    for pairs, count in zip(raw, counts, strict=True):
        if count == 0:
            raise DataError(f"every pair of {pairs.name} has more than {max_length} tokens; raise data.max_length")
    lengths = measure_lengths(source.ends, target.ends, plus=1)
    left_out = sum(map(len, raw)) - len(source)
    if len(raw) == 1:
        return EncodedPairs(source, target, lengths, left_out=left_out)
    mixed = mixture_shares(counts.tolist(), [pairs.weight for pairs in raw], limit=limit, temperature=temperature)
    return EncodedPairs(source, target, lengths, np.repeat(np.arange(len(raw)), counts), mixed, left_out)
