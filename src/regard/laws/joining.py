"""Joining: rows that enter a running batch run as alone."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.laws.case import LENGTH, Case, make_ids, read_out, require_close
from regard.model.net import Net
from regard.nn.core.context import Memory
from regard.nn.core.coords import Coords
from regard.nn.core.state import State

STAGES = ((2, 5, 4, 1), (1, 2, 7, 3), (2, 7, 2, 1), (1, 1, 5, 2))
"""Groups of rows that enter: how many, tokens that they have read, length of their sources, steps until the next."""
LEAVE = 2
"""Before this group enters, every second row leaves."""
DIFFERS = "rows that joined a running batch differ from the same rows alone; implement `State.join`, or declare Can(join=False)"


@torch.no_grad()
def check_join(case: Case) -> None:
    """Rows enter a batch that has read more tokens or fewer, others leave, and each continues as if it were alone."""
    net = case.net()
    batch: _Running | None = None
    for i, (count, read, source, steps) in enumerate(STAGES):
        if batch is not None and i == LEAVE:
            batch.select(torch.arange(0, len(batch.tokens), 2))
        entering = _Running(net, make_ids(count, LENGTH, seed=i), make_ids(count, source, seed=9 + i), read)
        batch = entering if batch is None else batch.join(entering)
        for _ in range(steps):
            batch.step()


class _Running:
    """Rows that are decoded one token at a time, each compared with the whole pass over it alone."""

    def __init__(self, net: Net, tokens: Tensor, sources: Tensor, read: int) -> None:
        self.net, self.tokens, self.read = net, tokens, [read] * len(tokens)
        self.memory: Memory | None = None
        source = None
        if net.encoder is not None:
            source = sources, Coords.span(sources.shape[1])
            self.memory = net.encode(*source)
        self.wanted = [*read_out(net, net(tokens, Coords.span(LENGTH), source))]
        _, self.state = net.decode(tokens[:, :read], Coords.span(read), self.memory, net.start(len(tokens), read))

    def join(self, other: _Running) -> _Running:
        self.state = _given(self.state).join(_given(other.state))
        if self.memory is not None and other.memory is not None:
            self.memory = self.memory.join(other.memory)
        self.tokens, self.read = torch.cat([self.tokens, other.tokens]), self.read + other.read
        self.wanted += other.wanted
        return self

    def select(self, rows: Tensor) -> None:
        self.state = _given(self.state).select(rows, rows)
        self.memory = None if self.memory is None else self.memory.select(rows)
        self.tokens = self.tokens[rows]
        self.read, self.wanted = ([each[i] for i in rows.tolist()] for each in (self.read, self.wanted))

    def step(self) -> None:
        at = Coords(torch.tensor(self.read).unsqueeze(1))
        out, self.state = self.net.decode(self.tokens.gather(1, at.pos), at, self.memory, self.state)
        for row, wanted, n in zip(read_out(self.net, out), self.wanted, self.read, strict=True):
            require_close(row[0], wanted[n], DIFFERS)
        self.read = [n + 1 for n in self.read]


def _given(state: State | None) -> State:
    assert state is not None
    return state
