"""Beam search: the k best beginnings of each sentence go on, side by side, until none of them can still win.

    each step   2k best continuations ─┬─ those of the first k that end (or reach the limit) ─▶ finished, best k kept
                                       └─ the k best that go on ─▶ next step
    a sentence leaves when k are finished and its best running hypothesis, judged at its present length, beats none of them

The rule is that of most toolkits (and of `transformers`, which the tests compare with); everything is done on tensors for all
sentences at once, and a sentence that is done leaves the batch. A hypothesis is its last token and a pointer to the place it
came from; tokens are read off backwards, once, when its sentence leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from regard.decode.ensemble import Steps
from regard.decode.greedy import Hypothesis
from regard.decode.search import Search
from regard.decode.token_constraints import Constraint
from regard.decode.topk import top

Continue = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]
"""(scores (b, k), log-probabilities (b·k, v), how many) -> what `continuations` gives, in the order in which it is wanted."""


def continuations(running: Tensor, log_probs: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The best `count` continuations of hypotheses with scores (b, k), given log-probabilities (b·k, v).

    Their scores, best first, and (b, 2, count) moves: which hypothesis each comes from, and the token it writes.
    """
    b, v = running.shape[0], log_probs.shape[1]
    each = min(count, v)  # no hypothesis has more among the best
    values, tokens = top(log_probs, each)
    total = (running.view(-1, 1) + values).view(b, -1)
    best, where = total.topk(min(count, total.shape[1]))
    return best, torch.stack([where // each, tokens.view(b, -1).gather(1, where)], 1)


@torch.no_grad()
def beam_search(
    steps: Steps,
    first: Tensor,
    *,
    eos: int,
    limits: Tensor,
    search: Search,
    constraints: Sequence[Constraint] = (),
    choose: Continue = continuations,
) -> list[list[Hypothesis]]:
    """The `n_best` hypotheses of each sentence, best first. `steps` holds `search.beam` rows a sentence."""
    k, b, device = search.beam, limits.shape[0], first.device
    longest = int(limits.max()) if b else 0
    out: list[list[Hypothesis]] = [[] for _ in range(b)]
    index = torch.arange(b, device=device)  # which sentence of the input each group of rows is
    running = torch.full((b, k), -torch.inf, dtype=torch.float64, device=device)
    running[:, 0] = 0.0  # all hypotheses are alike at first: only one may speak
    trail = torch.empty(b, longest, 2, k, dtype=torch.long, device=device)  # came from, wrote
    done = Finished(b, k, device)
    last = first.repeat_interleave(k)
    for step in range(longest):
        log_probs = steps.advance(last.unsqueeze(1))
        for constraint in constraints:
            constraint.apply(log_probs)
        best, moves = choose(running, log_probs, 2 * k)
        ends = (moves[:, 1] == eos) | (step + 1 >= limits).unsqueeze(1)
        divisor = search.divisor(step + 1)
        done.add(best[:, :k], moves[:, :, :k], ends[:, :k], step + 1, divisor)
        going = ends.long().argsort(dim=1, stable=True)[:, :k]
        running = best.masked_fill(ends, -torch.inf).gather(1, going)
        moves = moves.gather(2, going.unsqueeze(1).expand(-1, 2, -1))
        trail[index, step] = moves
        over = running.amax(1) / divisor <= done.scores[:, -1]  # −inf on the left: nothing can go on
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
        steps.select(rows, stay if leaves else None)
        for constraint in constraints:
            constraint.select(rows)
            constraint.wrote(last)
    return out


class Finished:
    """The k best finished hypotheses of each sentence so far: score, log-probability, and (came from, wrote, length)."""

    def __init__(self, b: int, k: int, device: torch.device) -> None:
        self.scores = torch.full((b, k), -torch.inf, dtype=torch.float64, device=device)
        self.totals = self.scores.clone()
        self.ends = torch.zeros(b, 3, k, dtype=torch.long, device=device)

    def add(self, totals: Tensor, moves: Tensor, ends: Tensor, length: int, divisor: float) -> None:
        """Take in those that `ends` marks, if they are among the best."""
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
        """The best hypotheses of one sentence, without places that were never filled."""
        found = []
        scores, totals = self.scores[sentence].tolist(), self.totals[sentence].tolist()
        for score, total, end in zip(scores[:count], totals, self.ends[sentence].T.tolist(), strict=False):
            if score == -torch.inf:
                break
            place, token, length = end
            tokens = [] if token == eos else [token]
            for came, wrote in reversed(trail[: length - 1]):
                tokens.append(wrote[place])
                place = came[place]
            found.append(Hypothesis(tuple(reversed(tokens)), total, score))
        return found
