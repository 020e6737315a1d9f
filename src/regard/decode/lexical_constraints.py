"""Terms that must be in an output: beam search with a place for every stage of writing them (Post & Vilar 2018).

Each hypothesis knows how far it has come with each term: the longest beginning of the term that it ends with, kept by the
automaton of Knuth, Morris & Pratt, so that terms may overlap or hold one another. `need` is how many tokens would still
finish all of them: those of the unfinished terms, less what is there of the one that has come furthest.

    terms  A B, C     wrote …      need 3    the best continuations of every need take turns (Hu et al. 2019), so that
                      wrote … A    need 2    having paid for a term is no disadvantage to those who have:
                      wrote … A B  need 1    best with need 3, best with 2, best with 1, best with 0, second with 3, …

Nothing ends in need, and what would need more tokens than there is room for is not gone on with: every output has its terms.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.decode.token_constraints import Constraint
from regard.decode.topk import top
from regard.errors import DataError, NoRoom

Term = Sequence[int]
WIDEST = 32
"""However many tokens the terms of a sentence have, its beam is made no wider than this for them."""


def width(beam: int, terms: Sequence[Term]) -> int:
    """How wide a beam should be at least, so that every need has a place in it; without terms, as it is."""
    return max(beam, min(1 + sum(map(len, terms)), WIDEST)) if terms else beam


def check(
    terms: Sequence[Sequence[Term]] | None,
    prefixes: Sequence[Sequence[int]] | None,
    limits: Sequence[int],
    *,
    never: set[int],
) -> None:
    """Whether what must be written can be: no term has what is `never` written, and there is room for all of it."""
    terms, prefixes = terms or [()] * len(limits), prefixes or [()] * len(limits)
    for place, row in enumerate(terms):
        if wrong := [term for term in row if not term or never.intersection(term)]:
            raise DataError(
                f"source {place}: the term {[*wrong[0]]} should be tokens that may be written, and not none"
            )
    needs = [sum(map(len, row)) + len(prefix) for row, prefix in zip(terms, prefixes, strict=True)]
    if lacking := [place for place, (need, limit) in enumerate(zip(needs, limits, strict=True)) if need > limit]:
        raise NoRoom(
            f"source {lacking[0]}: what must be written has {needs[lacking[0]]} tokens, and there is room for "
            f"{limits[lacking[0]]}; ask for fewer terms or a shorter beginning",
            lacking,
        )


class Terms(Constraint):
    """What each of the rows must write; `rest` says what they may not, but never forbids going on with a term."""

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

    def wrote(self, tokens: Tensor) -> None:
        self.state = self._after(tokens.unsqueeze(1)).squeeze(1)
        self.written += 1
        for constraint in self.rest:
            constraint.wrote(tokens)

    def select(self, rows: Tensor) -> None:
        self.words, self.lengths, self.steps, self.state, self.limits = (
            t.index_select(0, rows) for t in (self.words, self.lengths, self.steps, self.state, self.limits)
        )
        for constraint in self.rest:
            constraint.select(rows)

    def continuations(self, running: Tensor, log_probs: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """As `beam.continuations`, with the next tokens of terms among what is chosen from, and every need taking turns."""
        b, unfinished, aims = running.shape[0], self.state < self.lengths, self._next()
        values, tokens = top(log_probs, min(count, log_probs.shape[1]))
        twice = (aims.unsqueeze(2) == torch.where(unfinished, aims, -1).unsqueeze(1)).tril(-1).any(2)
        twice |= (aims.unsqueeze(2) == tokens.unsqueeze(1)).any(2)
        aimed = log_probs.gather(1, aims.clamp(min=0)).masked_fill(twice | ~unfinished, -torch.inf)
        values, tokens = torch.cat([values, aimed], 1), torch.cat([tokens, aims.clamp(min=0)], 1)
        each, need = tokens.shape[1], self._need(self._after(tokens))
        left = (self.limits - self.written - 1).unsqueeze(1)
        lost = (need > left) | ((tokens == self.eos) & (need > 0))
        total = (running.view(-1, 1) + values).masked_fill(lost, -torch.inf)
        best, where = in_turn(total.view(b, -1), need.view(b, -1), count)
        return best, torch.stack([where // each, tokens.view(b, -1).gather(1, where)], 1)

    def _next(self) -> Tensor:
        """The token that goes on with each term (rows, terms); −1 where there is none."""
        at = self.state.clamp(max=self.words.shape[2] - 1).unsqueeze(2)
        return torch.where(self.state < self.lengths, self.words.gather(2, at).squeeze(2), -1)

    def _after(self, tokens: Tensor) -> Tensor:
        """How far every term has come (rows, m, terms) after each of the tokens (rows, m); what is finished stays so."""
        size = self.words.shape[2]
        at = self.state.clamp(max=size - 1)[:, :, None, None].expand(-1, -1, 1, size)
        goes = self.steps.gather(2, at).squeeze(2).unsqueeze(1)  # (rows, 1, terms, size): after each token of the term
        hits = self.words.unsqueeze(1) == tokens[:, :, None, None]
        done = (self.state >= self.lengths).unsqueeze(1)
        return torch.where(done, self.lengths.unsqueeze(1), (goes * hits).amax(3))

    def _need(self, state: Tensor) -> Tensor:
        """How many tokens would surely finish all terms: writing the furthest to its end, then the others from the start.

        That terms may share tokens is not counted on. The next token of the furthest makes the need less by one at least.
        """
        lengths = self.lengths.unsqueeze(1)
        unfinished = state < lengths
        return (unfinished * lengths).sum(2) - (unfinished * state).amax(2)


def in_turn(totals: Tensor, need: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The best of every need, the better first, then the second best of every need, and so on: scores, and where they are."""
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
    """[i, j]: how much of the term there is when, after its first i tokens, its j-th token is written."""
    table, back = torch.zeros(size, size, dtype=torch.long), 0  # back: where to go on when a match of i tokens breaks
    for i, token in enumerate(term):
        if i:
            table[i] = table[back]
            back = int(table[back][i])
        table[i, [j for j, other in enumerate(term) if other == token]] = i + 1
    return table
