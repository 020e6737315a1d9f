"""A search that is under way: step, leave, join.

Sequences that are searched for together. After each step those that have ended leave; others can be dropped, and a batch that
was started later can join, whatever lengths the two have reached. What is found for a sequence does not depend on its company.

    generate     start ─▶ step ─▶ step ─▶ …                     until all have ended
    a server     start ─▶ step ─▶ join ─▶ step ─▶ drop ─▶ …     as requests come and go
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.decode.decode_request import NOT_NUMBERS, Hypothesis
from regard.decode.token_constraints import Constraint
from regard.errors import DamagedModel, StateError
from regard.stopping import Stop, check_stops


@dataclasses.dataclass(frozen=True)
class SearchStep:
    """Result of one step."""

    keys: Sequence[int]
    """The sequences that took the step."""
    tokens: Tensor | None
    """The token of each, where that is final; None in beam search."""
    done: Mapping[int, list[Hypothesis]]
    """The hypotheses of those that have ended, best first."""


def check_log_probs(log_probs: Tensor) -> Tensor:
    """Return log-probabilities (rows, v) unchanged; DamagedModel if a model computes none: then a whole row is NaN."""
    if bool(log_probs[:, 0].isnan().any()):
        raise DamagedModel(NOT_NUMBERS)
    return log_probs


class SearchBatch:
    """Base of the batches; `keys` name their sequences, at first 0, 1, …"""

    keys: list[int]
    eos: int
    last: Tensor
    """The last token of each row."""

    def step(self) -> SearchStep:
        """Extend every sequence by a token; those that end leave."""
        raise NotImplementedError

    def _select(self, sequences: Tensor) -> None:
        raise NotImplementedError

    def _join(self, other: Self) -> None:
        raise NotImplementedError

    def drop(self, keys: Collection[int]) -> None:
        """Let sequences leave before they have ended."""
        stay = [i for i, key in enumerate(self.keys) if key not in keys]
        if len(stay) < len(self.keys):
            self._select(torch.tensor(stay, dtype=torch.long, device=self.last.device))

    def join(self, other: Self) -> None:
        """Append the sequences of another batch, which has taken at least one step, as this one has."""
        if twice := set(self.keys) & set(other.keys):
            raise StateError(f"two sequences of a batch have the key {min(twice)}; set `keys` before they are joined")
        if not other.keys:
            return
        self._join(other)
        self.keys = [*self.keys, *other.keys]

    def finish(self, stops: Sequence[Stop] | None = None) -> list[list[Hypothesis]]:
        """Search until all sequences have ended; their hypotheses in order. `stops` are looked at before each step."""
        order, found = list(self.keys), dict[int, list[Hypothesis]]()
        while self.keys:
            check_stops(stops)
            found |= self.step().done
        return [found[key] for key in order]


def join_rows(a: Tensor, b: Tensor, fill: int) -> Tensor:
    """Append rows (b, n) of another length; `fill` stands after the shorter ones."""
    n = max(a.shape[1], b.shape[1])
    return torch.cat([F.pad(t, (0, n - t.shape[1]), value=fill) for t in (a, b)])


def join_constraints(ours: Sequence[Constraint], others: Sequence[Constraint]) -> list[Constraint]:
    """The constraints of both batches together; they must be of the same kinds."""
    if [type(each) for each in ours] != [type(each) for each in others]:
        raise StateError("only batches with the same kinds of constraints can be joined")
    for one, other in zip(ours, others, strict=True):
        one.join(other)
    return list(ours)
