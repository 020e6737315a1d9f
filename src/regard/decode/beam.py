"""Beam search over any model with state.

    each step   2k best continuations ─┬─ those of the first k that end (or reach the limit) ─▶ finished, best k kept
                                       └─ the k best that go on ─▶ next step
    a sentence leaves when k are finished and its best running hypothesis, scored at its current length, beats none of them

The stopping rule is that of most toolkits (and of `transformers`, which the tests compare with). All sentences are processed
together, and a finished sentence leaves the batch. A hypothesis is its last token and a pointer to its parent; tokens are
read backwards, once, when its sentence leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.decode.decode_request import Hypothesis
from regard.decode.ensemble import Ensemble
from regard.decode.search import Search
from regard.decode.search_batch import SearchBatch, SearchStep, check_log_probs, join_constraints
from regard.decode.token_constraints import Constraint
from regard.decode.topk import topk

RankContinuations = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]
"""(scores (b, k), log-probabilities (b·k, v), count) -> what `rank_continuations` returns, in order of preference."""


def rank_continuations(running: Tensor, log_probs: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The best `count` continuations of hypotheses with scores (b, k), given log-probabilities (b·k, v).

    Returns their scores, best first, and (b, 2, count) moves: the parent hypothesis of each and the token it writes.
    """
    b, v = running.shape[0], log_probs.shape[1]
    each = min(count, v)  # no hypothesis can contribute more
    values, tokens = topk(log_probs, each)
    total = (running.view(-1, 1) + values).view(b, -1)
    best, where = total.topk(min(count, total.shape[1]))
    return best, torch.stack([where // each, tokens.view(b, -1).gather(1, where)], 1)


class BeamBatch(SearchBatch):
    """Sentences that are searched with `search.beam` hypotheses each."""

    def __init__(
        self,
        ensemble: Ensemble,
        first: Tensor,
        *,
        eos: int,
        limits: Tensor,
        search: Search,
        constraints: Sequence[Constraint] = (),
        rank: RankContinuations = rank_continuations,
    ) -> None:
        k, b, device = search.beam, limits.shape[0], first.device
        longest = int(limits.max()) if b else 0
        self.ensemble, self.eos, self.search, self.limits = ensemble, eos, search, limits
        self.constraints, self.rank = list(constraints), rank
        self.keys = list(range(b))
        self.running = torch.full((b, k), -torch.inf, dtype=torch.float64, device=device)
        self.running[:, 0] = 0.0  # all hypotheses are equal at first: only one counts
        self.trail = torch.empty(b, longest, 2, k, dtype=torch.long, device=device)  # parent, token
        self.index = torch.arange(b, device=device)  # the row of each sentence in the trail, which is not reordered
        self.done = Finished(b, k, device)
        self.last = first.repeat_interleave(k)
        self.steps = torch.zeros(b, dtype=torch.long, device=device)
        self._divisors = _tabulate_divisors(search, longest, device)

    @torch.no_grad()
    def step(self) -> SearchStep:
        k, keys = self.search.beam, self.keys
        log_probs = check_log_probs(self.ensemble.advance(self.last.unsqueeze(1)))
        for constraint in self.constraints:
            constraint.apply(log_probs)
        best, moves = self.rank(self.running, log_probs, 2 * k)
        length = self.steps + 1
        ends = (moves[:, 1] == self.eos) | (length >= self.limits).unsqueeze(1)
        divisor = self._divisors[length].unsqueeze(1)
        self.done.add(best[:, :k], moves[:, :, :k], ends[:, :k], length, divisor)
        going = ends.long().argsort(dim=1, stable=True)[:, :k]
        self.running = best.masked_fill(ends, -torch.inf).gather(1, going)
        moves = moves.gather(2, going.unsqueeze(1).expand(-1, 2, -1))
        self.trail[self.index, self.steps] = moves
        self.steps = length
        over = (self.running / divisor).amax(1) <= self.done.scores[
            :, -1
        ]  # −inf on the left: no hypothesis can continue
        stay = (~over).nonzero().squeeze(1)
        found = dict[int, list[Hypothesis]]()
        leaves = stay.shape[0] < len(keys)
        if leaves:
            for i in over.nonzero().squeeze(1).tolist():
                trail = self.trail[self.index[i]].tolist()
                found[keys[i]] = self.done.best(i, self.search.n_best, trail, self.eos)
            self._keep(stay)
            moves = moves[stay]
        if self.keys:
            rows = ((stay * k).unsqueeze(1) + moves[:, 0]).flatten()
            self.last = moves[:, 1].flatten()
            self.ensemble.select(rows, stay if leaves else None)
            for constraint in self.constraints:
                constraint.select(rows)
                constraint.update(self.last)
        return SearchStep(keys, None, found)

    def _keep(self, sentences: Tensor) -> None:
        """Keep only these sentences, except in what has a row per hypothesis."""
        self.keys = [self.keys[i] for i in sentences.tolist()]
        self.index, self.running, self.limits, self.steps = (
            t[sentences] for t in (self.index, self.running, self.limits, self.steps)
        )
        self.done.select(sentences)

    def _select(self, sequences: Tensor) -> None:
        self._keep(sequences)
        if not self.keys:
            return
        k = self.search.beam
        rows = ((sequences * k).unsqueeze(1) + torch.arange(k, device=sequences.device)).flatten()
        self.last = self.last[rows]
        self.ensemble.select(rows, sequences)
        for constraint in self.constraints:
            constraint.select(rows)

    def _join(self, other: Self) -> None:
        self.constraints = join_constraints(self.constraints, other.constraints)
        self.ensemble.join(other.ensemble)
        trails = [side.trail[side.index] for side in (self, other)]
        longest = max(trail.shape[1] for trail in trails)
        self.trail = torch.cat([F.pad(t, (0, 0, 0, 0, 0, longest - t.shape[1])) for t in trails])
        self.index = torch.arange(self.trail.shape[0], device=self.index.device)
        self.running, self.limits, self.steps, self.last = (
            torch.cat([a, b])
            for a, b in (
                (self.running, other.running),
                (self.limits, other.limits),
                (self.steps, other.steps),
                (self.last, other.last),
            )
        )
        self.done.join(other.done)
        if len(other._divisors) > len(self._divisors):
            self._divisors = other._divisors


def beam_search(
    ensemble: Ensemble,
    first: Tensor,
    *,
    eos: int,
    limits: Tensor,
    search: Search,
    constraints: Sequence[Constraint] = (),
    rank: RankContinuations = rank_continuations,
) -> list[list[Hypothesis]]:
    """The `n_best` hypotheses of each sentence, best first. `ensemble` holds `search.beam` rows per sentence."""
    batch = BeamBatch(ensemble, first, eos=eos, limits=limits, search=search, constraints=constraints, rank=rank)
    return batch.finish()


def _tabulate_divisors(search: Search, longest: int, device: torch.device) -> Tensor:
    """Return the divisors of log-probabilities of outputs of 0, 1, … tokens."""
    divisors = [1.0, *(search.divisor(n) for n in range(1, longest + 1))]
    return torch.tensor(divisors, dtype=torch.float64, device=device)


class Finished:
    """The k best finished hypotheses of each sentence: score, log-probability, and (parent, token, length)."""

    def __init__(self, b: int, k: int, device: torch.device) -> None:
        self.scores = torch.full((b, k), -torch.inf, dtype=torch.float64, device=device)
        self.totals = self.scores.clone()
        self.ends = torch.zeros(b, 3, k, dtype=torch.long, device=device)

    def add(self, totals: Tensor, moves: Tensor, ends: Tensor, length: Tensor, divisor: Tensor) -> None:
        """Add the hypotheses marked in `ends`, of `length` tokens (b,), if they are among the best."""
        if not ends.any():
            return
        k = self.scores.shape[1]
        scores = torch.cat([self.scores, (totals / divisor).masked_fill(~ends, -torch.inf)], 1)
        self.scores, order = scores.topk(k)
        self.totals = torch.cat([self.totals, totals], 1).gather(1, order)
        new = torch.cat([moves, length.view(-1, 1, 1).expand(-1, 1, moves.shape[2])], 1)
        self.ends = torch.cat([self.ends, new], 2).gather(2, order.unsqueeze(1).expand(-1, 3, -1))

    def select(self, sentences: Tensor) -> None:
        self.scores, self.totals, self.ends = (t[sentences] for t in (self.scores, self.totals, self.ends))

    def join(self, other: Finished) -> None:
        self.scores, self.totals, self.ends = (
            torch.cat([a, b])
            for a, b in ((self.scores, other.scores), (self.totals, other.totals), (self.ends, other.ends))
        )

    def best(self, sentence: int, count: int, trail: list[list[list[int]]], eos: int) -> list[Hypothesis]:
        """The best hypotheses of one sentence, without unused places."""
        found = []
        scores, totals = self.scores[sentence].tolist(), self.totals[sentence].tolist()
        for score, total, end in zip(scores[:count], totals, self.ends[sentence].T.tolist(), strict=False):
            if score == -torch.inf:
                break
            place, token, length = end
            tokens = [] if token == eos else [token]
            for parents, written in reversed(trail[: length - 1]):
                tokens.append(written[place])
                place = parents[place]
            found.append(Hypothesis(tuple(reversed(tokens)), total, score))
        return found
