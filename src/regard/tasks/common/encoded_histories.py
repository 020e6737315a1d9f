"""Histories of items as tokens, and batches of them.

Tokens are items from 1; 0 is the mask and padding.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batch import pad_rows
from regard.data.negatives import OwnItems, draw_negatives
from regard.data.ragged import Ragged
from regard.tasks.common.target_ranks import Targets

MASK = 0
"""The token of an item to predict, and of padding."""


@dataclasses.dataclass(frozen=True, eq=False)
class EncodedHistories:
    """The newest items of each user, as tokens. In training, each is predicted; otherwise, a target after the last."""

    rows: Ragged
    users: NDArray[np.int64]
    """The user of each row."""
    known: Ragged
    """All items of every user except those held out, as numbers."""
    own: OwnItems
    names: tuple[str, ...]
    """The names of all users."""
    targets: NDArray[np.int64] | None = None
    candidates: NDArray[np.int64] | None = None
    """Sampled items that the targets are compared with (N, k)."""
    negatives: NDArray[np.int64] | None = None
    """In training, a negative for each entry of `rows.ids`; 0 for none."""
    masked: NDArray[np.bool_] | None = None
    """In training, whether an encoder should predict each entry of `rows.ids`."""
    groups: None = None
    shares: None = None
    left_out: int = 0

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        return self.rows.lengths - (self.targets is None)

    def __len__(self) -> int:
        return len(self.rows)

    def draw(self, seed: int, epoch: int, *, mask_rate: float, mask_last: float) -> EncodedHistories:
        """Training examples with new negatives and masks for every item, whatever batch it will be in.

        A share of a row's items is masked, at least one; of a share `mask_last` of the rows only the last.
        """
        bits = np.random.Philox(np.random.SeedSequence(seed, spawn_key=(epoch,)))
        lengths = self.rows.lengths
        row = np.repeat(np.arange(len(lengths)), lengths)
        negatives = draw_negatives(bits, self.users[row], self.own) + 1
        order = np.lexsort((bits.random_raw(len(row)), row))
        place = np.arange(len(row)) - np.repeat(self.rows.ends - lengths, lengths)
        masked = np.empty(len(row), bool)
        masked[order] = place < np.maximum(np.rint(mask_rate * lengths), 1)[row]
        last_only = bits.random_raw(len(lengths)) * 2.0**-64 < mask_last
        masked = np.where(last_only[row], place == lengths[row] - 1, masked)
        return dataclasses.replace(self, negatives=negatives, masked=masked)

    def batch(self, indices: NDArray[np.int64], *, repeats: bool) -> HistoryBatch:
        """The batch of these rows; with `repeats`, a user's own items are ranked, too."""
        side = pad_rows(self.rows, indices, MASK)
        if self.targets is not None:
            return HistoryBatch(side.ids, side.lengths, targets=self.select_targets(indices, repeats=repeats))
        assert self.negatives is not None and self.masked is not None
        lengths = np.array(side.lengths)
        inside = np.arange(side.ids.shape[1]) < lengths[:, None]
        starts = self.rows.ends[indices] - lengths
        flat = np.arange(int(lengths.sum())) + np.repeat(starts - np.cumsum(lengths) + lengths, lengths)
        negatives, masked = np.zeros(inside.shape, np.int64), np.zeros(inside.shape, bool)
        negatives[inside], masked[inside] = self.negatives[flat], self.masked[flat]
        return HistoryBatch(side.ids, side.lengths, torch.from_numpy(negatives), torch.from_numpy(masked))

    def select_targets(self, indices: NDArray[np.int64], *, repeats: bool) -> Targets:
        """Select what is ranked for these rows."""
        assert self.targets is not None and self.candidates is not None
        rows, items = self.own.rows(self.users[indices][: 0 if repeats else None])
        return Targets(
            torch.from_numpy(self.targets[indices]),
            torch.from_numpy(self.candidates[indices]),
            (torch.from_numpy(rows), torch.from_numpy(items + 1)),
        )


@dataclasses.dataclass(frozen=True)
class HistoryBatch:
    """Items (b, n), padded on the right; in training with negatives and masks (b, n), otherwise with targets."""

    ids: Tensor
    lengths: tuple[int, ...]
    negatives: Tensor | None = None
    masked: Tensor | None = None
    targets: Targets | None = None

    @property
    def tokens(self) -> int:
        return len(self.lengths) if self.targets is not None else sum(self.lengths) - len(self.lengths)

    def to(self, device: torch.device | str) -> HistoryBatch:
        def move(side: Tensor | None) -> Tensor | None:
            return None if side is None else side.to(device)

        targets = None if self.targets is None else self.targets.to(device)
        return HistoryBatch(self.ids.to(device), self.lengths, move(self.negatives), move(self.masked), targets)


def drop_oldest(rows: Tensor, lengths: Tensor, most: int) -> Tensor:
    """Rows (b, n) of at most `most` + 1 items without the first item of those that have one too many."""
    if rows.shape[1] <= most:
        return rows
    return torch.where((lengths > most).unsqueeze(1), rows[:, 1:], rows[:, :-1])
