"""Decoding for models that cannot run token by token.

The state holds the tokens themselves, and every call runs all of them.
"""

from __future__ import annotations

import dataclasses
from typing import Self

import torch
from torch import Tensor

from regard.errors import StateError
from regard.nn.core.coords import Coords
from regard.nn.core.state import NOWHERE, State, join_padded, moving


@dataclasses.dataclass
class Replay(State):
    """All tokens read so far, and their coordinates."""

    ids: Tensor = moving()
    at: Coords = moving()

    @classmethod
    def empty(cls, rows: int, device: torch.device) -> Self:
        return cls(torch.empty(rows, 0, dtype=torch.long, device=device), NOWHERE)

    def add(self, ids: Tensor, at: Coords) -> Self:
        """Return a state with later tokens appended."""
        whole = torch.cat([self.ids, ids], 1) if self.ids.shape[1] else ids  # vectors, for a model that reads them
        return dataclasses.replace(self, ids=whole, at=self.at.extend(at))

    def join(self, other: Self) -> Self:
        at = self.at.join(other.at, self.ids.shape[0], other.ids.shape[0], left=True)
        return dataclasses.replace(self, ids=join_padded(self.ids, other.ids, 1, left=True), at=at)

    def cut(self, n: int) -> Self:
        if n > self.at.n:
            raise StateError(f"cannot keep {n} of {self.at.n} remembered tokens")
        return dataclasses.replace(self, ids=self.ids[:, :n], at=self.at.cut(n))
