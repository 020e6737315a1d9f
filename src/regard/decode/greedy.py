"""Greedy search and sampling: one hypothesis per row.

Rows that end leave the batch, and rows of another batch may join it between two steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

import torch
from torch import Tensor

from regard.decode.decode_request import Hypothesis
from regard.decode.ensemble import Ensemble
from regard.decode.search import Search
from regard.decode.search_batch import SearchBatch, SearchStep, check_log_probs, join_constraints, join_rows
from regard.decode.token_constraints import Constraint


class ChooseToken(Protocol):
    """Chooses the next token of each row."""

    def __call__(self, log_probs: Tensor, index: Tensor, step: Tensor | int) -> Tensor:
        """(log-probabilities (rows, v), each row's index in the input, its step) -> tokens (rows,)."""

    def join(self, index: Tensor, other: Self, more: Tensor) -> Self:
        """The choice for rows `index` of this batch, followed by rows `more` of another."""


class ChooseBest:
    """The most likely token of each row."""

    def __call__(self, log_probs: Tensor, index: Tensor, step: Tensor | int) -> Tensor:
        return log_probs.max(1).indices

    def join(self, index: Tensor, other: Self, more: Tensor) -> Self:
        return self


choose_best = ChooseBest()


class GreedyBatch(SearchBatch):
    """Rows that are extended by the tokens that `choose` picks, until their end marks or limits."""

    def __init__(
        self,
        ensemble: Ensemble,
        first: Tensor,
        *,
        eos: int,
        limits: Tensor,
        search: Search,
        choose: ChooseToken = choose_best,
        constraints: Sequence[Constraint] = (),
    ) -> None:
        rows, device = first.shape[0], first.device
        self.ensemble, self.last, self.eos, self.search = ensemble, first, eos, search
        self.choose, self.constraints, self.limits = choose, list(constraints), limits
        self.keys = list(range(rows))
        self.index = torch.arange(rows, device=device)  # the row of each running row in what `choose` was made of
        self.written = torch.full((rows, int(limits.max()) if rows else 0), eos, device=device)
        self.totals = torch.zeros(rows, dtype=torch.float64, device=device)
        self.steps = torch.zeros(rows, dtype=torch.long, device=device)

    @torch.no_grad()
    def step(self) -> SearchStep:
        log_probs = check_log_probs(self.ensemble.advance(self.last.unsqueeze(1)))
        for constraint in self.constraints:
            constraint.apply(log_probs)
        self.last = last = self.choose(log_probs, self.index, self.steps)
        self.totals += log_probs.gather(1, last.unsqueeze(1)).squeeze(1)
        self.written.scatter_(1, self.steps.unsqueeze(1), last.unsqueeze(1))
        self.steps = self.steps + 1
        for constraint in self.constraints:
            constraint.update(last)
        over, keys = (last == self.eos) | (self.steps >= self.limits), self.keys
        if not over.any():
            return SearchStep(keys, last, {})
        done, ends = {}, over.nonzero().squeeze(1)
        rows = (t[ends].tolist() for t in (self.written, self.totals, self.steps))
        for i, row, total, n in zip(ends.tolist(), *rows, strict=True):
            tokens = tuple(t for t in row[:n] if t != self.eos)
            done[keys[i]] = [Hypothesis(tokens, total, total / self.search.divisor(n))]
        self._select((~over).nonzero().squeeze(1))
        return SearchStep(keys, last, done)

    def _select(self, rows: Tensor) -> None:
        self.keys = [self.keys[i] for i in rows.tolist()]
        self.index, self.written, self.totals, self.limits, self.last, self.steps = (
            t[rows] for t in (self.index, self.written, self.totals, self.limits, self.last, self.steps)
        )
        if not self.keys:
            return
        self.ensemble.select(rows, rows)
        for constraint in self.constraints:
            constraint.select(rows)

    def _join(self, other: Self) -> None:
        self.choose = self.choose.join(self.index, other.choose, other.index)
        self.index = torch.arange(len(self.keys) + len(other.keys), device=self.index.device)
        self.written = join_rows(self.written, other.written, self.eos)
        self.totals, self.limits, self.last, self.steps = (
            torch.cat([a, b])
            for a, b in (
                (self.totals, other.totals),
                (self.limits, other.limits),
                (self.last, other.last),
                (self.steps, other.steps),
            )
        )
        self.constraints = join_constraints(self.constraints, other.constraints)
        self.ensemble.join(other.ensemble)


def greedy_search(
    ensemble: Ensemble,
    first: Tensor,
    *,
    eos: int,
    limits: Tensor,
    search: Search,
    choose: ChooseToken = choose_best,
    constraints: Sequence[Constraint] = (),
) -> list[Hypothesis]:
    """Extend every row by the tokens that `choose` picks, until its end mark or limit."""
    batch = GreedyBatch(ensemble, first, eos=eos, limits=limits, search=search, choose=choose, constraints=constraints)
    return [best for (best,) in batch.finish()]
