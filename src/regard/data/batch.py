"""Batches: padded token ids and their lengths.

Batches are the only objects that pass from data to models. They are built from flat arrays, without a loop over rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.bptt import DocumentNumbers
from regard.data.ragged import Ragged

IGNORE = -100
"""The label of a position without a target (as in PyTorch)."""


@dataclasses.dataclass(frozen=True)
class PaddedTokens:
    """Token ids (b, n), padded on the right, with the length of each row."""

    ids: Tensor
    lengths: tuple[int, ...]
    documents: tuple[tuple[int, ...], ...] | None = None
    """In packed rows, the lengths of the documents in each row, which must not attend to one another."""
    first: int = 0
    """Number of tokens of each row's stream in earlier batches."""
    docs: Tensor | None = None
    """In a stream of several texts, the number of the text each token comes from, (b, n)."""

    def to(self, device: torch.device | str) -> PaddedTokens:
        docs = None if self.docs is None else self.docs.to(device)
        return dataclasses.replace(self, ids=self.ids.to(device), docs=docs)


@dataclasses.dataclass(frozen=True)
class Batch:
    """Input of the model (`source`, `given`) and what it should predict (`wanted`, IGNORE where there is no target)."""

    given: PaddedTokens
    wanted: Tensor
    source: PaddedTokens | None
    tokens: int
    """Number of targets."""

    def to(self, device: torch.device | str) -> Batch:
        source = None if self.source is None else self.source.to(device)
        return dataclasses.replace(self, given=self.given.to(device), wanted=self.wanted.to(device), source=source)


def pad_rows(
    rows: Ragged, indices: NDArray[np.int64], fill: int, *, before: int | None = None, after: int | None = None
) -> PaddedTokens:
    """Pad the chosen rows to a matrix, with a special token before or after each row if given."""
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


def repeat_last(rows: PaddedTokens, lengths: Sequence[int], token: int, fill: int) -> PaddedTokens:
    """Append `token` to each row until it has its new length; the appended tokens are no padding."""
    n = max(lengths)
    ids = torch.nn.functional.pad(rows.ids, (0, n - rows.ids.shape[1]), value=fill)
    column, old, new = torch.arange(n), *(torch.tensor(x).unsqueeze(1) for x in (rows.lengths, tuple(lengths)))
    return PaddedTokens(ids.masked_fill((column >= old) & (column < new), token), tuple(lengths))


def next_token_batch(
    ids: NDArray[np.integer[Any]],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    pad: int,
    counts: NDArray[np.int64] | None = None,
) -> Batch:
    """Build a language-modeling batch: slices of `ids` as inputs, the next token of each position as target.

    Each slice is a row; with `counts`, row i holds `counts[i]` slices one after another (packing).
    """
    counts = np.ones_like(lengths) if counts is None else counts
    row, last = np.repeat(np.arange(len(counts)), counts), np.cumsum(counts)
    before = np.cumsum(lengths) - lengths  # tokens in all slices before this one
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


def stream_batch(ids: NDArray[np.integer[Any]], docs: DocumentNumbers | None, segments: NDArray[np.int64]) -> Batch:
    """Build a batch from the next segment of every stream row (see `bptt.Segments`); all segments are equally long."""
    length, before = segments[0, 1:].tolist()
    places = segments[:, :1] + np.arange(length)
    given, wanted = ids[places].astype(np.int64), ids[places + 1].astype(np.int64)
    of = None
    if docs is not None:
        here = docs[places]
        of = torch.from_numpy(here)
        wanted[docs[places + 1] != here] = IGNORE  # a text does not predict the next text
    side = PaddedTokens(torch.from_numpy(given), (length,) * len(segments), first=before, docs=of)
    return Batch(side, torch.from_numpy(wanted), None, int((wanted != IGNORE).sum()))
