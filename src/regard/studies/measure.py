"""Time and memory of one layer, forward and backward, in a process of its own: what a parent asks, line by line.

Memory is the allocator's own account, the most bytes torch held at once beyond those it held before: the same on every run,
whatever the operating system makes of pages. Beside it stands how far the process grew. Time is wall-clock time.

    parent: {"name": "local", "shape": {…}, "threads": 2}    ▶  child: {"ready": true}
    parent: {"n": 4096, "seconds": 2.0}                      ▶  child: {"n": 4096, "bytes": …, "passes": […], …}
"""

from __future__ import annotations

import dataclasses
import gc
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from regard.machine import keep_large_blocks
from regard.studies.contenders import CONTENDERS, Shape
from regard.studies.growth import predicted
from regard.studies.worker import grown

TIMED = 3
"""The layer that is timed, where layers differ by number."""
PASSES = 15
"""As many are timed at most."""
EVENTS = 350_000
"""A longer account would itself take gigabytes: layers of very many small operations are counted at shorter lengths only."""


def account(run: Callable[[], object]) -> tuple[int, int]:
    """The most bytes that torch held at once while it ran, beyond what it held before, and the events it took to know."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as made:
        run()
    events = made.profiler.kineto_results.events()
    now = most = 0
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most, len(events)


class Passes:
    """A layer with a batch of one row, to run forward and backward."""

    def __init__(self, layer: nn.Module, shape: Shape) -> None:
        self.layer = layer.train()
        self.x = torch.randn(1, shape.n, shape.width, requires_grad=True)
        self.grad = torch.randn(1, shape.n, shape.width)

    def run(self) -> tuple[float, float]:
        """Seconds forward and backward."""
        self.layer.zero_grad(set_to_none=True)
        self.x.grad = None
        start = time.perf_counter()
        y = self.layer(self.x)
        middle = time.perf_counter()
        y.backward(self.grad)
        return middle - start, time.perf_counter() - middle


class Measuring:
    """One contender at one length after the other."""

    def __init__(self, name: str, shape: Shape) -> None:
        self.name, self.shape = name, shape
        self.events: list[tuple[int, float]] = []

    def at(self, n: int, seconds: float) -> dict[str, Any]:
        """Bytes of a first pass, which also warms up, then the times of as many as fit into these seconds.

        `bytes` is None where the account would be longer than `EVENTS`; `least` is what all this takes with one timed pass.
        """
        shape, began = dataclasses.replace(self.shape, n=n), time.perf_counter()
        passes, size = Passes(CONTENDERS[self.name].layer(shape, TIMED), shape), None
        if (predicted(self.events, n, usual=1) or 0) > EVENTS:
            passes.run()
        else:
            size, count = account(passes.run)
            self.events.append((n, count))
        gc.collect()
        before, times = time.perf_counter() - began, [passes.run()]
        while len(times) < PASSES and sum(map(sum, times)) < seconds:
            times.append(passes.run())
        return {"n": n, "bytes": size, "passes": times, "least": before + min(map(sum, times))}


def serve() -> None:
    """The child's side."""
    asked = json.loads(sys.stdin.readline())
    torch.set_num_threads(asked["threads"])
    torch.manual_seed(0)
    keep_large_blocks()
    measuring = Measuring(asked["name"], Shape(**asked["shape"]))
    account(lambda: torch.zeros(1))  # the first takes a second
    started = grown()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        answer = measuring.at(**json.loads(line))
        print(json.dumps(answer | {"grown": grown() - started}), flush=True)


if __name__ == "__main__":
    serve()
