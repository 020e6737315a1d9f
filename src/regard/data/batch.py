"""The one object that crosses from data to model: padded ids and lengths, made from flat arrays without a loop over rows."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.ragged import Ragged

IGNORE = -100
"""A target that does not count."""


@dataclasses.dataclass(frozen=True)
class PaddedTokens:
    """Token ids (b, n), padded at the right, with each row's length."""

    ids: Tensor
    lengths: tuple[int, ...]
    documents: tuple[tuple[int, ...], ...] | None = None
    """Where rows are packed: the lengths of the documents in each, which must not see one another."""
    first: int = 0
    """How many tokens of each row's stream came in batches before this one."""
    docs: Tensor | None = None
    """Of a stream of several texts, which of them each token is from, (b, n)."""

    def to(self, device: torch.device | str) -> PaddedTokens:
        docs = None if self.docs is None else self.docs.to(device)
        return dataclasses.replace(self, ids=self.ids.to(device), docs=docs)


@dataclasses.dataclass(frozen=True)
class Batch:
    """What the model reads (`source`, `given`) and what it should write (`wanted`, IGNORE where nothing is asked)."""

    given: PaddedTokens
    wanted: Tensor
    source: PaddedTokens | None
    tokens: int
    """How many targets count."""

    def to(self, device: torch.device | str) -> Batch:
        source = None if self.source is None else self.source.to(device)
        return dataclasses.replace(self, given=self.given.to(device), wanted=self.wanted.to(device), source=source)


def pad_rows(
    rows: Ragged, indices: NDArray[np.int64], fill: int, *, before: int | None = None, after: int | None = None
) -> PaddedTokens:
    """Chosen rows as one matrix, with a mark before or after each."""
    chosen = rows.take(indices)
    lengths = chosen.lengths
    start = 0 if before is None else 1
    total = lengths + start + (0 if after is None else 1)
    n = int(total.max())
    out = np.full((len(lengths), n), fill, dtype=np.int64)
    column = np.arange(n)
    inside = (column >= start) & (column < (start + lengths)[:, None])
    out[inside] = chosen.ids
    if before is not None:
        out[:, 0] = before
    if after is not None:
        out[np.arange(len(lengths)), total - 1] = after
    return PaddedTokens(torch.from_numpy(out), tuple(total.tolist()))


def next_token_batch(
    ids: NDArray[np.int32],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    pad: int,
    counts: NDArray[np.int64] | None = None,
) -> Batch:
    """Stretches of a long row of ids as what a model reads, and what follows each token as what it should write.

    Every stretch is a row; with `counts`, so many of them after one another are.
    """
    counts = np.ones_like(lengths) if counts is None else counts
    row, last = np.repeat(np.arange(len(counts)), counts), np.cumsum(counts)
    before = np.cumsum(lengths) - lengths  # tokens in all stretches before this one
    whole = np.add.reduceat(lengths, last - counts)
    step = np.arange(int(lengths.sum()))
    place = step + np.repeat(starts - before, lengths)
    cell = np.repeat(row, lengths), step - np.repeat(before[last - counts], whole)
    given = np.full((len(counts), int(whole.max())), pad, np.int64)
    wanted = np.full_like(given, IGNORE)
    given[cell], wanted[cell] = ids[place], ids[place + 1]
    packed = None
    if len(lengths) > len(counts):
        packed = tuple(tuple(part.tolist()) for part in np.split(lengths, last[:-1]))
    side = PaddedTokens(torch.from_numpy(given), tuple(whole.tolist()), packed)
    return Batch(side, torch.from_numpy(wanted), None, len(step))


def stream_batch(ids: NDArray[np.int32], docs: NDArray[np.int64] | None, segments: NDArray[np.int64]) -> Batch:
    """Segments of a stream (start, length, tokens before: all equally long, at one point of their rows) as a batch."""
    length, before = segments[0, 1:].tolist()
    places = segments[:, :1] + np.arange(length)
    given, wanted = ids[places].astype(np.int64), ids[places + 1].astype(np.int64)
    of = None
    if docs is not None:
        of = torch.from_numpy(docs[places])
        wanted[docs[places + 1] != docs[places]] = IGNORE  # what comes after the end of a text is no concern of it
    side = PaddedTokens(torch.from_numpy(given), (length,) * len(segments), first=before, docs=of)
    return Batch(side, torch.from_numpy(wanted), None, int((wanted != IGNORE).sum()))
