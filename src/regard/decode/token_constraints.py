"""Token constraints: banned tokens, prefixes, repetition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self

import torch
from torch import Tensor

from regard.decode.decode_request import FREE
from regard.errors import StateError

MAX_PERIOD = 16
"""The longest cycle that `RepetitionGuard` detects."""


class Constraint:
    """Changes log-probabilities (rows, v) in place; follows what each row writes and which rows go on."""

    def apply(self, log_probs: Tensor) -> None:
        raise NotImplementedError

    def update(self, tokens: Tensor) -> None:
        """Take note of the token that each row wrote."""

    def select(self, rows: Tensor) -> None:
        """Keep only these rows, in this order."""

    def join(self, other: Self) -> None:
        """Append the rows of another constraint of the same kind."""
        raise StateError(f"sequences with {type(self).__name__} cannot join others that are being decoded")


class BannedTokens(Constraint):
    """Tokens that are never written, such as padding and the start mark."""

    def __init__(self, tokens: Iterable[int], device: torch.device | str | None = None) -> None:
        self.tokens = torch.tensor(sorted(set(tokens)), dtype=torch.long, device=device)

    def apply(self, log_probs: Tensor) -> None:
        log_probs.index_fill_(1, self.tokens, -torch.inf)

    def join(self, other: Self) -> None:
        if self.tokens.tolist() != other.tokens.tolist():
            raise StateError("sequences with different banned tokens cannot be decoded together")


class ForcedPrefix(Constraint):
    """Each row begins with given tokens, even banned ones; elsewhere the constraints in `rest` apply.

    `forced` is (rows, t), with `FREE` where a row does not end but may write anything else, and `NONE` after its prefix.
    """

    NONE = -2
    LEAST = -1e9
    """The log-probability of a forced token to which the model gives none: finite, so that the search still prefers it."""

    def __init__(self, forced: Tensor, rest: Sequence[Constraint] = (), *, eos: int | None = None) -> None:
        self.forced, self.rest, self.eos, self.step = forced, rest, eos, 0

    def apply(self, log_probs: Tensor) -> None:
        want = self.forced[:, self.step : self.step + 1]
        at = want.clamp(min=0)
        given = log_probs.gather(1, at)
        for constraint in self.rest:
            constraint.apply(log_probs)
        if want.shape[1] and self.eos is not None:
            log_probs[:, self.eos].masked_fill_(want[:, 0] == FREE, -torch.inf)
        if want.shape[1]:
            held = torch.where(want < 0, log_probs.gather(1, at), given.clamp(min=self.LEAST))
            log_probs.masked_fill_(want >= 0, -torch.inf).scatter_(1, at, held)

    def update(self, tokens: Tensor) -> None:
        self.step += 1
        for constraint in self.rest:
            constraint.update(tokens)

    def select(self, rows: Tensor) -> None:
        self.forced = self.forced.index_select(0, rows)
        for constraint in self.rest:
            constraint.select(rows)


class RepetitionGuard(Constraint):
    """Forbids the token that continues a cycle which already repeated for longer than `patience` tokens.

    The translation of n tokens has no reason to repeat itself for longer than n; copying a repetitive text stays possible.
    `run[p]` counts how many of the last tokens equal the one p places before them.
    """

    def __init__(self, patience: Tensor) -> None:
        self.patience = patience
        self.history = torch.full((patience.shape[0], MAX_PERIOD), -1, device=patience.device)
        self.run = torch.zeros_like(self.history)
        self.period = torch.arange(1, MAX_PERIOD + 1, device=patience.device)
        self.written = 0
        self.earliest = int(patience.min()) if patience.numel() else 0

    def apply(self, log_probs: Tensor) -> None:
        if self.written <= self.earliest:
            return
        endless = (self.run + self.period > self.patience.unsqueeze(1)) & (self.run >= 2 * self.period)
        if bool(endless.any()):
            row, back = endless.nonzero(as_tuple=True)
            log_probs[row, self.history[row, back]] = -torch.inf

    def update(self, tokens: Tensor) -> None:
        self.run = torch.where(self.history == tokens.unsqueeze(1), self.run + 1, 0)
        self.history = torch.cat([tokens.unsqueeze(1), self.history[:, :-1]], 1)
        self.written += 1

    def select(self, rows: Tensor) -> None:
        self.patience, self.history, self.run = (
            t.index_select(0, rows) for t in (self.patience, self.history, self.run)
        )

    def join(self, other: Self) -> None:
        self.patience, self.history, self.run = (
            torch.cat([a, b])
            for a, b in ((self.patience, other.patience), (self.history, other.history), (self.run, other.run))
        )
        self.written, self.earliest = max(self.written, other.written), min(self.earliest, other.earliest)
