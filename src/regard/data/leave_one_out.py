"""Leave-one-out: the last items of users are held out.

    a user's items   i₁ i₂ … iₙ₋₂ iₙ₋₁ iₙ
    training         ────────────             every item but the first is predicted from those before it
    validation       ............ ↑           iₙ₋₁ from i₁ … iₙ₋₂
    test             ................. ↑      iₙ from i₁ … iₙ₋₁

Users with fewer than three items are in training only (Kang & McAuley 2018).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.data.interactions import Interactions
from regard.data.piece_parts import Part
from regard.data.ragged import Ragged

HELD_OUT = 2
"""Items of a user that training does not see."""


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """One part of the interactions."""

    interactions: Interactions
    part: Part

    @property
    def users(self) -> NDArray[np.int64]:
        """The users of this part: in training those with something to predict, otherwise those with held-out items."""
        lengths = self.interactions.histories.lengths
        return np.flatnonzero(lengths > HELD_OUT) if self.part != "train" else np.flatnonzero(self._ends() > 1)

    def histories(self) -> Ragged:
        """Known items of every user, those of other parts included: the items before the one to predict."""
        return cut_rows(self.interactions.histories, np.zeros_like(self._ends()), self._ends())

    def targets(self, users: NDArray[np.int64]) -> NDArray[np.int32]:
        """The held-out item of these users."""
        found = self.interactions.histories
        return np.asarray(found.ids[(found.ends - found.lengths + self._ends())[users]], np.int32)

    def _ends(self) -> NDArray[np.int64]:
        lengths = self.interactions.histories.lengths
        return np.where(lengths > HELD_OUT, lengths - (1 if self.part == "test" else HELD_OUT), lengths)


def cut_rows(rows: Ragged, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Ragged:
    """The part of each row from its start to its end, counted in the row."""
    lengths = ends - starts
    new = np.cumsum(lengths, dtype=np.int64)
    shift = rows.ends - rows.lengths + starts - (new - lengths)
    return Ragged(rows.ids[np.arange(int(lengths.sum())) + np.repeat(shift, lengths)], new)


def cut_windows(rows: Ragged, step: int) -> tuple[NDArray[np.int64], Ragged]:
    """Windows of at most `step` + 1 items that overlap by one, from the end of each row, so that each item but the first of a
    row is predicted once; and the row that each is from."""
    lengths = rows.lengths
    counts = np.maximum(-(-(lengths - 1) // step), 1)
    source = np.repeat(np.arange(len(rows)), counts)
    place = np.arange(len(source)) - np.repeat(np.cumsum(counts) - counts, counts)
    ends = lengths[source] - place * step
    return source, cut_rows(rows.take(source), np.maximum(ends - step - 1, 0), ends)
