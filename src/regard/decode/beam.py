"""Beam search: the k best beginnings of each sentence go on, side by side, until none of them can still win.

    each step   2k best continuations ─┬─ those of the first k that end (or reach the limit) ─▶ finished, best k kept
                                       └─ the k best that go on ─▶ next step
    a sentence leaves when k are finished and its best running hypothesis, judged at its present length, beats none of them

The rule is that of most toolkits (and of `transformers`, which the tests compare with); everything is done on tensors for all
sentences at once, and a sentence that is done leaves the batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.decode.constrain import Constraint
from regard.decode.search import Search
from regard.decode.steps import Steps
from regard.decode.walk import Hypothesis


@torch.no_grad()
def beam_search(
    steps: Steps,
    first: Tensor,
    *,
    eos: int,
    limits: Tensor,
    search: Search,
    constraints: Sequence[Constraint] = (),
) -> list[list[Hypothesis]]:
    """The `n_best` hypotheses of each sentence, best first. `steps` holds `search.beam` rows a sentence."""
    k, device = search.beam, first.device
    b, longest = limits.shape[0], int(limits.max()) if limits.numel() else 0
    out: list[list[Hypothesis]] = [[] for _ in range(b)]
    index = torch.arange(b, device=device)  # which sentence of the input each group of rows is
    running = torch.full((b, k), -torch.inf, dtype=torch.float64, device=device)
    running[:, 0] = 0.0  # all hypotheses are alike at first: only one may speak
    written = torch.full((b, k, longest), eos, device=device)
    done = Finished(b, k, longest, eos, device)
    last = first.repeat_interleave(k)
    for step in range(longest):
        log_probs = steps.advance(last.unsqueeze(1))
        if constraints:
            log_probs = log_probs.clone()
            for constraint in constraints:
                constraint.apply(log_probs)
        b, v = index.shape[0], log_probs.shape[1]
        total = running.unsqueeze(2) + log_probs.view(b, k, v)
        best, where = total.view(b, k * v).topk(min(2 * k, k * v))
        parent, token = where // v, where % v
        grown = written.gather(1, parent.unsqueeze(2).expand(-1, -1, longest))
        grown[:, :, step] = token
        ends = (token == eos) | (step + 1 >= limits).unsqueeze(1)
        done.add(grown[:, :k], best[:, :k], ends[:, :k], step + 1, search.divisor(step + 1))
        running, going = best.masked_fill(ends, -torch.inf).topk(k)
        stuck = running[:, 0] == -torch.inf  # nothing left that could go on
        over = stuck | (done.full & (running[:, 0] / search.divisor(step + 1) <= done.worst))
        written = grown.gather(1, going.unsqueeze(2).expand(-1, -1, longest))
        last = token.gather(1, going).flatten()
        parent = parent.gather(1, going)
        stay = (~over).nonzero().squeeze(1)
        if stay.numel() < b:
            for i in over.nonzero().squeeze(1).tolist():
                out[int(index[i])] = done.best(i, search.n_best)
            if stay.numel() == 0:
                return out
            index, running, written, limits = index[stay], running[stay], written[stay], limits[stay]
            done.select(stay)
        base = (stay * k).unsqueeze(1)
        rows = (base + parent[stay]).flatten()
        last = last.view(b, k)[stay].flatten()
        steps.select(rows, stay if stay.numel() < b else None)
        for constraint in constraints:
            constraint.select(rows)
            constraint.wrote(last)
    return out


class Finished:
    """The k best finished hypotheses of each sentence so far."""

    def __init__(self, b: int, k: int, longest: int, eos: int, device: torch.device) -> None:
        self.eos = eos
        self.scores = torch.full((b, k), -torch.inf, dtype=torch.float64, device=device)
        self.totals = self.scores.clone()
        self.tokens = torch.full((b, k, longest), eos, device=device)
        self.lengths = torch.zeros(b, k, dtype=torch.long, device=device)

    def add(self, tokens: Tensor, totals: Tensor, ends: Tensor, length: int, divisor: float) -> None:
        """Take in those that `ends` marks, if they are among the best."""
        scores = torch.cat([self.scores, (totals / divisor).masked_fill(~ends, -torch.inf)], 1)
        self.scores, order = scores.topk(self.scores.shape[1])
        self.totals = torch.cat([self.totals, totals], 1).gather(1, order)
        self.lengths = torch.cat([self.lengths, torch.full_like(self.lengths[:, : totals.shape[1]], length)], 1).gather(
            1, order
        )
        spread = order.unsqueeze(2).expand(-1, -1, self.tokens.shape[2])
        self.tokens = torch.cat([self.tokens, tokens], 1).gather(1, spread)

    @property
    def full(self) -> Tensor:
        return self.scores[:, -1] > -torch.inf

    @property
    def worst(self) -> Tensor:
        return self.scores[:, -1]

    def select(self, sentences: Tensor) -> None:
        for name in ("scores", "totals", "tokens", "lengths"):
            setattr(self, name, getattr(self, name).index_select(0, sentences))

    def best(self, sentence: int, count: int) -> list[Hypothesis]:
        """The best hypotheses of one sentence, without what never finished."""
        found = []
        for j in range(count):
            if self.scores[sentence, j] == -torch.inf:
                break
            tokens = self.tokens[sentence, j, : int(self.lengths[sentence, j])].tolist()
            kept = tuple(t for t in tokens if t != self.eos)
            found.append(Hypothesis(kept, float(self.totals[sentence, j]), float(self.scores[sentence, j])))
        return found
