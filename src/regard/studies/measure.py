"""Time and memory of one layer, in a child process.

Memory is the peak of what torch's allocator held beyond what it held before, which is the same on every run; the growth of the
process is reported, too. Time is wall-clock time. The parent asks line by line:

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

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from regard.machine import keep_large_blocks, peak_memory
from regard.studies.contenders import CONTENDERS, Shape
from regard.studies.growth import extrapolate

TIMED = 3
"""The index of the timed layer, for layers that differ by index."""
PASSES = 15
"""Maximum number of timed passes."""
EVENTS = 350_000
"""Maximum number of allocation events: a longer record would take gigabytes itself."""


def account(run: Callable[[], object]) -> tuple[int, int]:
    """Peak bytes that torch allocated during the call, and the number of allocation events."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as made:
        run()
    events = made.profiler.kineto_results.events()
    now = most = 0
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most, len(events)


class Passes:
    """Forward and backward passes of a layer over one row."""

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
    """Measures one contender at one length after the other."""

    def __init__(self, name: str, shape: Shape) -> None:
        self.name, self.shape = name, shape
        self.events: list[tuple[int, float]] = []

    def at(self, n: int, seconds: float) -> dict[str, object]:
        """Bytes of a first pass, which also warms up, then the times of as many passes as fit into these seconds.

        `bytes` is None where the account would be longer than `EVENTS`; `least` is what all this takes with one timed pass.
        """
        shape, began = dataclasses.replace(self.shape, n=n), time.perf_counter()
        passes, size = Passes(CONTENDERS[self.name].layer(shape, TIMED), shape), None
        if (extrapolate(self.events, n, usual=1) or 0) > EVENTS:
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
    """Answer the parent's questions."""
    asked = json.loads(sys.stdin.readline())
    torch.set_num_threads(asked["threads"])
    torch.manual_seed(0)
    keep_large_blocks()
    measuring = Measuring(asked["name"], Shape(**asked["shape"]))
    account(lambda: torch.zeros(1))  # the first call takes a second
    started = peak_memory()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        answer = measuring.at(**json.loads(line))
        print(json.dumps(answer | {"grown": peak_memory() - started}), flush=True)


if __name__ == "__main__":
    serve()
