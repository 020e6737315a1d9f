"""Time shares of encoder, decoder and head.

In training, and in decoding token by token. Parts are separated by detached tensors, so that each can be timed forward and
backward on its own.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from regard.families import transformer
from regard.model.net import Net
from regard.nn.core.context import Memory
from regard.nn.core.coords import Coords
from regard.nn.core.state import State

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Size:
    """Model and batch: `rows` pairs of `n` tokens on each side."""

    width: int = 256
    depth: int = 3
    heads: int = 4
    vocab: int = 8000
    rows: int = 8
    n: int = 64

    def net(self) -> Net:
        spec = transformer.spec(
            width=self.width, depth=self.depth, heads=self.heads, hidden=4 * self.width, vocab=self.vocab, dropout=0.0,
            length=self.n,
        )  # fmt: skip
        return spec.build(seed=0)


SIZE = Size()


class Clock:
    """Seconds by part."""

    def __init__(self) -> None:
        self.seconds = {"encoder": 0.0, "decoder": 0.0, "head": 0.0}

    def time(self, part: str, run: Callable[[], T]) -> T:
        start = time.perf_counter()
        out = run()
        self.seconds[part] += time.perf_counter() - start
        return out

    def shares(self) -> dict[str, float]:
        total = sum(self.seconds.values())
        return {part: spent / total for part, spent in self.seconds.items()} | {"seconds": total}


def measure_shares(size: Size = SIZE, rounds: int = 3) -> dict[str, dict[str, float]]:
    """The time share of each part in a training step and in greedy decoding; the fastest of several rounds."""
    torch.manual_seed(0)
    net, ids = size.net(), torch.randint(size.vocab, (size.rows, size.n))
    kinds = {"training": _train, "decoding": _decode}
    found = {}
    for name, run in kinds.items():
        run(net, ids)  # warm up
        found[name] = min((run(net, ids).shares() for _ in range(rounds)), key=lambda s: s["seconds"])
    return found


def _train(net: Net, ids: Tensor) -> Clock:
    clock, at = Clock(), Coords.span(ids.shape[1])
    net.train()
    net.zero_grad(set_to_none=True)
    memory = clock.time("encoder", lambda: net.encode(ids, at))
    keys = memory.keys.detach().requires_grad_()
    stream = clock.time("decoder", lambda: net.decode(ids, at, Memory(keys, keys, at))[0])
    end = stream.detach().requires_grad_()
    loss, _ = clock.time("head", lambda: net.loss(end, ids))
    clock.time("head", lambda: torch.autograd.backward(loss))
    clock.time("decoder", lambda: torch.autograd.backward(stream, end.grad))
    clock.time("encoder", lambda: torch.autograd.backward(memory.keys, keys.grad))
    return clock


@torch.no_grad()
def _decode(net: Net, ids: Tensor) -> Clock:
    clock, n = Clock(), ids.shape[1]
    net.eval()
    memory = clock.time("encoder", lambda: net.encode(ids, Coords.span(n)))
    token = ids[:, :1]
    state: State | None = net.start(ids.shape[0], n)
    for t in range(n):
        stream, state = clock.time("decoder", lambda: net.decode(token, Coords.span(1, t), memory, state))  # noqa: B023
        token = clock.time("head", lambda: net.logits(stream).argmax(-1))  # noqa: B023
    return clock
