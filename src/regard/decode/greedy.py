"""Greedy search and sampling: one hypothesis per row.

Rows that end leave the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

import torch
from torch import Tensor

from regard.decode.decode_request import Hypothesis
from regard.decode.ensemble import Ensemble
from regard.decode.search import Search
from regard.decode.token_constraints import Constraint

ChooseToken = Callable[[Tensor, Tensor, int], Tensor]
"""(log-probabilities (rows, v), each row's index in the input, step) -> tokens (rows,)."""


def choose_best(log_probs: Tensor, index: Tensor, step: int) -> Tensor:
    """The most likely token of each row."""
    return log_probs.max(1).indices


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
    steps = step_greedily(
        ensemble, first, eos=eos, limits=limits, search=search, choose=choose, constraints=constraints
    )
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: list[Hypothesis] = done.value
            return found


def step_greedily(
    ensemble: Ensemble,
    first: Tensor,
    *,
    eos: int,
    limits: Tensor,
    search: Search,
    choose: ChooseToken = choose_best,
    constraints: Sequence[Constraint] = (),
) -> Generator[Tensor, None, list[Hypothesis]]:
    """`greedy_search` as a generator: yields the tokens of the running rows after each step, returns the hypotheses."""
    rows, device = first.shape[0], first.device
    out: dict[int, Hypothesis] = {}
    index = torch.arange(rows, device=device)  # the input row of each running row
    written = torch.full((rows, int(limits.max()) if rows else 0), eos, device=device)
    totals, soonest = torch.zeros(rows, dtype=torch.float64, device=device), int(limits.min()) if rows else 0
    last = first
    for step in range(written.shape[1]):
        with torch.no_grad():
            log_probs = ensemble.advance(last.unsqueeze(1))
            for constraint in constraints:
                constraint.apply(log_probs)
            last = choose(log_probs, index, step)
            totals += log_probs.gather(1, last.unsqueeze(1)).squeeze(1)
            written[:, step] = last
            for constraint in constraints:
                constraint.update(last)
            over = last == eos
            if step + 1 >= soonest:
                over |= step + 1 >= limits
        yield last
        if not over.any():
            continue
        ends = over.nonzero().squeeze(1)
        for i, row, total in zip(*(t[ends].tolist() for t in (index, written, totals)), strict=True):
            tokens = tuple(t for t in row[: step + 1] if t != eos)
            out[i] = Hypothesis(tokens, total, total / search.divisor(step + 1))
        on = (~over).nonzero().squeeze(1)
        if on.numel() == 0:
            break
        index, written, totals, limits, last = (t[on] for t in (index, written, totals, limits, last))
        ensemble.select(on, on)
        for constraint in constraints:
            constraint.select(on)
    return [out[i] for i in range(rows)]
