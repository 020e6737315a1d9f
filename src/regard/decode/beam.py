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

import torch
from torch import Tensor

from regard.decode.decode_request import Hypothesis
from regard.decode.ensemble import Ensemble
from regard.decode.search import Search
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


@torch.no_grad()
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
    k, b, device = search.beam, limits.shape[0], first.device
    max_length = int(limits.max()) if b else 0
    out: list[list[Hypothesis]] = [[] for _ in range(b)]
    index = torch.arange(b, device=device)  # the input sentence of each group of rows
    running = torch.full((b, k), -torch.inf, dtype=torch.float64, device=device)
    running[:, 0] = 0.0  # all hypotheses are equal at first: only one counts
    trail = torch.empty(b, max_length, 2, k, dtype=torch.long, device=device)  # parent, token
    done = Finished(b, k, device)
    last = first.repeat_interleave(k)
    for step in range(max_length):
        log_probs = ensemble.advance(last.unsqueeze(1))
        for constraint in constraints:
            constraint.apply(log_probs)
        best, moves = rank(running, log_probs, 2 * k)
        ends = (moves[:, 1] == eos) | (step + 1 >= limits).unsqueeze(1)
        divisor = search.divisor(step + 1)
        done.add(best[:, :k], moves[:, :, :k], ends[:, :k], step + 1, divisor)
        going = ends.long().argsort(dim=1, stable=True)[:, :k]
        running = best.masked_fill(ends, -torch.inf).gather(1, going)
        moves = moves.gather(2, going.unsqueeze(1).expand(-1, 2, -1))
        trail[index, step] = moves
        over = running.amax(1) / divisor <= done.scores[:, -1]  # −inf on the left: no hypothesis can continue
        stay = (~over).nonzero().squeeze(1)
        leaves = stay.shape[0] < index.shape[0]
        if leaves:
            for i in over.nonzero().squeeze(1).tolist():
                sentence = int(index[i])
                out[sentence] = done.best(i, search.n_best, trail[sentence].tolist(), eos)
            if stay.shape[0] == 0:
                break
            index, running, moves, limits = index[stay], running[stay], moves[stay], limits[stay]
            done.select(stay)
        rows = ((stay * k).unsqueeze(1) + moves[:, 0]).flatten()
        last = moves[:, 1].flatten()
        ensemble.select(rows, stay if leaves else None)
        for constraint in constraints:
            constraint.select(rows)
            constraint.update(last)
    return out


class Finished:
    """The k best finished hypotheses of each sentence: score, log-probability, and (parent, token, length)."""

    def __init__(self, b: int, k: int, device: torch.device) -> None:
        self.scores = torch.full((b, k), -torch.inf, dtype=torch.float64, device=device)
        self.totals = self.scores.clone()
        self.ends = torch.zeros(b, 3, k, dtype=torch.long, device=device)

    def add(self, totals: Tensor, moves: Tensor, ends: Tensor, length: int, divisor: float) -> None:
        """Add the hypotheses marked in `ends`, if they are among the best."""
        if not ends.any():
            return
        k = self.scores.shape[1]
        scores = torch.cat([self.scores, (totals / divisor).masked_fill(~ends, -torch.inf)], 1)
        self.scores, order = scores.topk(k)
        self.totals = torch.cat([self.totals, totals], 1).gather(1, order)
        new = torch.cat([moves, torch.full_like(moves[:, :1], length)], 1)
        self.ends = torch.cat([self.ends, new], 2).gather(2, order.unsqueeze(1).expand(-1, 3, -1))

    def select(self, sentences: Tensor) -> None:
        self.scores, self.totals, self.ends = (t[sentences] for t in (self.scores, self.totals, self.ends))

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
