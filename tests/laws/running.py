"""Running a model whole, in chunks, and a row at a time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from regard.model.net import Net
from regard.nn.core.context import Memory
from regard.nn.core.coords import Coords
from regard.nn.core.state import State

CLOSE = {"rtol": 0.0, "atol": 1e-10}


def columns(at: Coords, a: int, b: int) -> Coords:
    """The coordinates of tokens a to b; a row without gaps stays one."""
    if at.first is not None and not at.padded:
        return Coords.span(b - a, at.first + a)
    doc = None if at.doc is None else at.doc[:, a:b]
    return Coords(at.pos[:, a:b], doc, padded=at.padded)


def run(
    net: Net, tokens: Tensor, at: Coords, state: State, cuts: Sequence[int], memory: Memory | None = None
) -> tuple[Tensor, State]:
    """Decode tokens chunk by chunk, borders at `cuts`, from a state on."""
    out = []
    for a, b in pairwise([0, *cuts, tokens.shape[1]]):
        y, following = net.decode(tokens[:, a:b], columns(at, a, b), memory, state)
        assert following is not None
        out.append(y)
        state = following
    return torch.cat(out, 1), state


def some_cuts(n: int, seed: int) -> list[int]:
    chance = random.Random(seed)
    return sorted(chance.sample(range(1, n), chance.randint(1, n - 1)))


def one_by_one(n: int) -> list[int]:
    return list(range(1, n))


def rows_alone(net: Net, rows: Sequence[Tensor]) -> list[Tensor]:
    """Each row of tokens in a pass of its own."""
    return [net(row.unsqueeze(0), Coords.span(len(row)))[0] for row in rows]
