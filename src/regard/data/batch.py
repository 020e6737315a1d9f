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
class Side:
    """Token ids (b, n), padded at the right, with each row's length."""

    ids: Tensor
    lengths: tuple[int, ...]

    def to(self, device: torch.device | str) -> Side:
        return dataclasses.replace(self, ids=self.ids.to(device))


@dataclasses.dataclass(frozen=True)
class Batch:
    """What the model reads (`source`, `given`) and what it should write (`wanted`, IGNORE where nothing is asked)."""

    given: Side
    wanted: Tensor
    source: Side | None
    tokens: int
    """How many targets count."""

    def to(self, device: torch.device | str) -> Batch:
        source = None if self.source is None else self.source.to(device)
        return dataclasses.replace(self, given=self.given.to(device), wanted=self.wanted.to(device), source=source)


def padded(
    rows: Ragged, indices: NDArray[np.int64], fill: int, *, before: int | None = None, after: int | None = None
) -> Side:
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
    return Side(torch.from_numpy(out), tuple(total.tolist()))


def next_tokens(ids: NDArray[np.int32], starts: NDArray[np.int64], lengths: NDArray[np.int64], pad: int) -> Batch:
    """Stretches of a long row of ids as what a model reads, and what follows each token as what it should write."""
    column = np.arange(int(lengths.max()))
    there = column < lengths[:, None]
    places = np.where(there, starts[:, None] + column, 0)
    given = np.where(there, ids[places], pad).astype(np.int64)
    wanted = np.where(there, ids[np.minimum(places + 1, len(ids) - 1)], IGNORE).astype(np.int64)
    side = Side(torch.from_numpy(given), tuple(lengths.tolist()))
    return Batch(side, torch.from_numpy(wanted), None, int(lengths.sum()))
