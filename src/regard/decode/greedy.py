"""One output a row, a token at a time: greedy, or drawn at random. Rows that end leave the batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from regard.decode.ensemble import Steps
from regard.decode.search import Search
from regard.decode.token_constraints import Constraint

Choose = Callable[[Tensor, Tensor, int], Tensor]
"""(log-probabilities (rows, v), each row's index in the input, step) -> tokens (rows,)."""


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """An output: its tokens without the end mark, its log-probability, and the score outputs are ranked by."""

    tokens: tuple[int, ...]
    log_prob: float
    score: float


def greedy(log_probs: Tensor, index: Tensor, step: int) -> Tensor:
    """The likeliest token."""
    return log_probs.max(1).indices


@torch.no_grad()
def walk(
    steps: Steps,
    first: Tensor,
    *,
    eos: int,
    limits: Tensor,
    search: Search,
    choose: Choose = greedy,
    constraints: Sequence[Constraint] = (),
    log_probs: Tensor | None = None,
) -> list[Hypothesis]:
    """Write until each row's end mark or limit. `first` (rows,) is read before, unless `log_probs` say what follows."""
    rows, device = first.shape[0], first.device
    out: dict[int, Hypothesis] = {}
    index = torch.arange(rows, device=device)  # which row of the input each row is
    written = torch.full((rows, int(limits.max()) if rows else 0), eos, device=device)
    totals, soonest = torch.zeros(rows, dtype=torch.float64, device=device), int(limits.min()) if rows else 0
    last = first
    for step in range(written.shape[1]):
        given = log_probs.clone() if log_probs is not None and step == 0 else steps.advance(last.unsqueeze(1))
        for constraint in constraints:
            constraint.apply(given)
        last = choose(given, index, step)
        totals += given.gather(1, last.unsqueeze(1)).squeeze(1)
        written[:, step] = last
        for constraint in constraints:
            constraint.wrote(last)
        over = last == eos
        if step + 1 >= soonest:
            over |= step + 1 >= limits
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
        steps.select(on, on)
        for constraint in constraints:
            constraint.select(on)
    return [out[i] for i in range(rows)]
