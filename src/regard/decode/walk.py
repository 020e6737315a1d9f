"""One output a row, a token at a time: greedy, or drawn at random. Rows that end leave the batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from regard.decode.constrain import Constraint
from regard.decode.search import Search
from regard.decode.steps import Steps
from regard.decode.top import top

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
    return top(log_probs, 1)[1].squeeze(1)


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
    index = torch.arange(rows, device=device)
    written = torch.full((rows, int(limits.max()) if rows else 0), eos, device=device)
    lengths, totals = torch.zeros_like(index), torch.zeros(rows, dtype=torch.float64, device=device)
    last = first
    for step in range(written.shape[1]):
        given = log_probs.clone() if log_probs is not None and step == 0 else steps.advance(last.unsqueeze(1))
        for constraint in constraints:
            constraint.apply(given)
        last = choose(given, index, step)
        totals[index] += given.gather(1, last.unsqueeze(1)).squeeze(1).to(totals.dtype)
        written[index, step] = last
        lengths[index] = step + 1
        for constraint in constraints:
            constraint.wrote(last)
        on = ((last != eos) & (step + 1 < limits[index])).nonzero().squeeze(1)
        if on.numel() == 0:
            break
        if on.numel() < last.shape[0]:
            last, index = last[on], index[on]
            steps.select(on, on)
            for constraint in constraints:
                constraint.select(on)
    return [
        Hypothesis(tuple(t for t in row[:n] if t != eos), total, total / search.divisor(n))
        for row, n, total in zip(written.tolist(), lengths.tolist(), totals.tolist(), strict=True)
    ]
