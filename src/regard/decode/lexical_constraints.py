"""Beam search with terms that outputs must include.

After Post & Vilar (2018) and Hu et al. (2019). Each hypothesis tracks its progress in each term: the longest prefix of the
term that the hypothesis ends with, updated by the automaton of Knuth, Morris & Pratt, so that terms may overlap or contain one
another. `need` is the number of tokens that would still complete all terms: those of the unfinished terms, less the progress
in the one that is most complete.

    terms  A B, C     wrote …      need 3    the best continuations of every need take turns (Hu et al. 2019),
                      wrote … A    need 2    so that having paid for a term is no disadvantage:
                      wrote … A B  need 1    best with need 3, best with 2, best with 1, best with 0, second with 3, …

No hypothesis ends while it needs tokens, and one that needs more than its limit allows is dropped: every output has its terms.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.decode.decode_request import Term
from regard.decode.token_constraints import Constraint
from regard.decode.topk import topk

MAX_BEAM = 32
"""Terms never widen a beam beyond this."""


def widen_beam(beam: int, terms: Sequence[Term]) -> int:
    """A beam with at least one place for every need; unchanged without terms."""
    return max(beam, min(1 + sum(map(len, terms)), MAX_BEAM)) if terms else beam


class TermConstraint(Constraint):
    """The terms that each row must include. Constraints in `rest` apply too, but never forbid continuing a term."""

    def __init__(
        self, terms: Sequence[Sequence[Term]], limits: Tensor, *, eos: int, rest: Sequence[Constraint] = ()
    ) -> None:
        device, self.eos, self.rest, self.written = limits.device, eos, rest, 0
        unique = [list(dict.fromkeys(map(tuple, row))) for row in terms]
        most = max(map(len, unique))
        size = max(len(term) for row in unique for term in row)
        filled = [[[*term, *[-1] * (size - len(term))] for term in (*row, *[()] * (most - len(row)))] for row in unique]
        self.words = torch.tensor(filled, device=device)  # (rows, terms, size)
        self.lengths = (self.words >= 0).sum(2)
        known = {term: _automaton(term, size) for row in unique for term in row}
        none = _automaton((), size)
        places = [[*map(known.__getitem__, row), *[none] * (most - len(row))] for row in unique]
        self.steps = torch.stack([torch.stack(row) for row in places]).to(device)  # (rows, terms, size, size)
        self.state = torch.zeros_like(self.lengths)
        self.limits = limits

    def apply(self, log_probs: Tensor) -> None:
        unfinished = self.state < self.lengths
        furthest = torch.where(unfinished, self.state, -1).argmax(1, keepdim=True)
        token = self._next().gather(1, furthest)
        given = log_probs.gather(1, token.clamp(min=0))
        for constraint in self.rest:
            constraint.apply(log_probs)
        row = unfinished.any(1).nonzero().squeeze(1)
        log_probs[row, token[row, 0]] = given[row, 0]

    def update(self, tokens: Tensor) -> None:
        self.state = self._after(tokens.unsqueeze(1)).squeeze(1)
        self.written += 1
        for constraint in self.rest:
            constraint.update(tokens)

    def select(self, rows: Tensor) -> None:
        self.words, self.lengths, self.steps, self.state, self.limits = (
            t.index_select(0, rows) for t in (self.words, self.lengths, self.steps, self.state, self.limits)
        )
        for constraint in self.rest:
            constraint.select(rows)

    def rank_continuations(self, running: Tensor, log_probs: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Like `beam.rank_continuations`, with the next token of every term as a candidate and needs taking turns."""
        b, unfinished, aims = running.shape[0], self.state < self.lengths, self._next()
        values, tokens = topk(log_probs, min(count, log_probs.shape[1]))
        twice = (aims.unsqueeze(2) == torch.where(unfinished, aims, -1).unsqueeze(1)).tril(-1).any(2)
        twice |= (aims.unsqueeze(2) == tokens.unsqueeze(1)).any(2)
        aimed = log_probs.gather(1, aims.clamp(min=0)).masked_fill(twice | ~unfinished, -torch.inf)
        values, tokens = torch.cat([values, aimed], 1), torch.cat([tokens, aims.clamp(min=0)], 1)
        each, need = tokens.shape[1], self._need(self._after(tokens))
        left = (self.limits - self.written - 1).unsqueeze(1)
        lost = (need > left) | ((tokens == self.eos) & (need > 0))
        total = (running.view(-1, 1) + values).masked_fill(lost, -torch.inf)
        best, where = interleave_needs(total.view(b, -1), need.view(b, -1), count)
        return best, torch.stack([where // each, tokens.view(b, -1).gather(1, where)], 1)

    def _next(self) -> Tensor:
        """The next token of each term (rows, terms); −1 where the term is complete."""
        at = self.state.clamp(max=self.words.shape[2] - 1).unsqueeze(2)
        return torch.where(self.state < self.lengths, self.words.gather(2, at).squeeze(2), -1)

    def _after(self, tokens: Tensor) -> Tensor:
        """Progress in every term (rows, m, terms) after each of the tokens (rows, m); a complete term stays complete."""
        size = self.words.shape[2]
        at = self.state.clamp(max=size - 1)[:, :, None, None].expand(-1, -1, 1, size)
        goes = self.steps.gather(2, at).squeeze(2).unsqueeze(1)  # (rows, 1, terms, size): after each token of the term
        hits = self.words.unsqueeze(1) == tokens[:, :, None, None]
        done = (self.state >= self.lengths).unsqueeze(1)
        return torch.where(done, self.lengths.unsqueeze(1), (goes * hits).amax(3))

    def _need(self, state: Tensor) -> Tensor:
        """Number of tokens that surely complete all terms: the most complete one first, then the others from the start.

        Shared tokens are not counted on. The next token of the most complete term reduces the need by at least one.
        """
        lengths = self.lengths.unsqueeze(1)
        unfinished = state < lengths
        return (unfinished * lengths).sum(2) - (unfinished * state).amax(2)


def interleave_needs(totals: Tensor, need: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The best of every need, then the second best of every need, and so on: their scores and indices."""
    scores, order = totals.sort(dim=1, descending=True, stable=True)
    need = need.gather(1, order)
    grouped = need.argsort(dim=1, stable=True)
    place, among = torch.arange(need.shape[1], device=need.device).expand_as(need), need.gather(1, grouped)
    first = torch.ones_like(among, dtype=torch.bool)
    first[:, 1:] = among[:, 1:] != among[:, :-1]
    rank = place - torch.where(first, place, 0).cummax(1).values
    turn = torch.empty_like(rank).scatter_(1, grouped, rank).masked_fill_(scores == -torch.inf, need.shape[1])
    chosen = turn.argsort(dim=1, stable=True)[:, :count]
    return scores.gather(1, chosen), order.gather(1, chosen)


def _automaton(term: Term, size: int) -> Tensor:
    """[i, j]: the progress in the term when its j-th token is written after its first i tokens."""
    table, back = torch.zeros(size, size, dtype=torch.long), 0  # back: where to continue when a match of i tokens fails
    for i, token in enumerate(term):
        if i:
            table[i] = table[back]
            back = int(table[back][i])
        table[i, [j for j, other in enumerate(term) if other == token]] = i + 1
    return table
