"""What the tests decode with: a stand-in model that says whatever it is told to, tiny real ones, and a slow beam search."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import torch
from torch import Tensor

from regard.decode import Hypothesis, Search, SpecialTokens
from regard.families import transformer
from regard.model.net import Net
from regard.nn.core.context import Memory
from regard.nn.core.coords import Coords
from regard.nn.core.state import State, moving

EOS, PAD, BOS = 0, 1, 2
MARKS = SpecialTokens(BOS, EOS, PAD)

Says = Callable[[tuple[int, ...], tuple[int, ...]], Sequence[float]]
"""(source, what was written) -> scores of the next token."""


@dataclasses.dataclass
class Read(State):
    ids: Tensor = moving()


class Oracle:
    """Stands in for a net: what it predicts is any function of the source and of all it has read."""

    def __init__(self, says: Says, vocab: int) -> None:
        self.says, self.device = says, torch.device("cpu")
        self.spec = SimpleNamespace(embed=SimpleNamespace(vocab=vocab), source=None, room=None)
        self.encoder = self.encode

    def encode(self, ids: Tensor, at: Coords) -> Memory:
        return Memory(ids, ids, at)

    def start(self, rows: int, capacity: int) -> Read:
        return Read(torch.empty(rows, 0, dtype=torch.long))

    def decode(self, ids: Tensor, at: Coords, memory: Memory, state: Read) -> tuple[Tensor, Read]:
        state = Read(torch.cat([state.ids, ids], 1))
        beam = ids.shape[0] // memory.keys.shape[0]
        kept = memory.at.kept.expand_as(memory.keys)
        sources = [tuple(row[keep].tolist()) for row, keep in zip(memory.keys, kept, strict=True) for _ in range(beam)]
        said = [self.says(s, tuple(read[1:])) for s, read in zip(sources, state.ids.tolist(), strict=True)]
        return torch.tensor(said, dtype=torch.float64).unsqueeze(1), state

    def logits(self, stream: Tensor) -> Tensor:
        return stream


def random_says(seed: int, vocab: int, eos_bias: float = 0.0) -> Says:
    """Independent random scores for every beginning of every source."""

    def says(source: tuple[int, ...], written: tuple[int, ...]) -> list[float]:
        draw = random.Random(hash((seed, source, written)))
        return [draw.gauss(eos_bias if t == EOS else 0.0, 1.0) for t in range(vocab)]

    return says


def copies(source: tuple[int, ...], written: tuple[int, ...]) -> list[float]:
    """Says the source again, then its end, with a vocabulary of nine."""
    want = source[len(written)] if len(written) < len(source) else EOS
    return [0.0 if t == want else -9.0 for t in range(9)]


def tiny(seed: int, vocab: int = 9, **changes: object) -> Net:
    """A small real model in float64 whose predictions are far from even."""
    settings = {"width": 8, "depth": 2, "heads": 2, "hidden": 8, "dropout": 0.0, "vocab": vocab, **changes}
    net = transformer.spec(**settings).build(seed).double().eval()  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in net.parameters():
            parameter *= 2
    return net


def scratch(net: Net, source: Sequence[int], written: Sequence[int]) -> Tensor:
    """Log-probabilities of the next token by a whole pass without any state."""
    given, at = torch.tensor([[BOS, *written]]), Coords.span(len(written) + 1)
    stream = net(given, at, (torch.tensor([list(source)]), Coords.span(len(source))))
    return net.logits(stream)[0, -1].log_softmax(-1)


def some_sources(seed: int, count: int, vocab: int = 9, longest: int = 6) -> list[list[int]]:
    draw = random.Random(seed)
    return [[*(draw.randrange(3, vocab) for _ in range(draw.randrange(longest))), EOS] for _ in range(count)]


def slow_beam(
    says: Callable[[tuple[int, ...]], Tensor],
    search: Search,
    *,
    source: int,
    prefix: Sequence[int] = (),
    banned: Sequence[int] = (BOS, PAD),
) -> list[Hypothesis]:
    """Beam search for one sentence in lists, straight from its description; `source` is the source's length."""
    running: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    finished: list[Hypothesis] = []
    limit = search.limit(source)
    for step in range(limit):
        divisor = search.divisor(step + 1)
        grown = []
        for total, written in running:
            for token, log_prob in enumerate(says(written).tolist()):
                if step < len(prefix):
                    allowed = token == prefix[step]
                else:
                    allowed = token not in banned and not (search.repetition_guard and loops(written, token, source))
                if allowed:
                    grown.append((total + log_prob, (*written, token)))
        grown = sorted(grown, reverse=True)[: 2 * search.beam]
        ended = [g for g in grown[: search.beam] if g[1][-1] == EOS or step + 1 == limit]
        finished += [Hypothesis(tuple(t for t in w if t != EOS), total, total / divisor) for total, w in ended]
        finished = sorted(finished, key=lambda h: -h.score)[: search.beam]
        running = [g for g in grown if g[1][-1] != EOS and step + 1 < limit][: search.beam]
        if not running or (len(finished) == search.beam and running[0][0] / divisor <= finished[-1].score):
            break
    return finished[: search.n_best]


def loops(written: tuple[int, ...], token: int, patience: int) -> bool:
    """Whether a token goes on with a cycle that has gone round three times, and for more than `patience` tokens."""
    for period in range(1, 17):
        if len(written) < 3 * period or token != written[-period]:
            continue
        tail = period
        while tail < len(written) and written[-tail - 1] == written[-tail - 1 + period]:
            tail += 1
        if tail > patience and tail >= 3 * period:
            return True
    return False


def close(found: Sequence[Hypothesis], wanted: Sequence[Hypothesis]) -> bool:
    """The same outputs in the same order, with scores equal but for rounding."""
    return [h.tokens for h in found] == [h.tokens for h in wanted] and all(
        math.isclose(a.score, b.score, abs_tol=1e-9) and math.isclose(a.log_prob, b.log_prob, abs_tol=1e-9)
        for a, b in zip(found, wanted, strict=True)
    )
