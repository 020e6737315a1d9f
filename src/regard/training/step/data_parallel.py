"""Split the work of a step over threads and processes.

Threads: each takes some rows of a batch through the forward and backward pass. Threads that share every operator wait for
one another a thousand times a step; threads that share a batch meet once. Each draws dropout from its own stream, and
gradients are added in a fixed order, so a step is a function of the seed.

Processes (`torchrun --nproc-per-node 2 -m regard train …`): all hold the same weights and take the same steps, each on its
share of the rows, and gradients are summed. Only the leader validates, logs and writes; it announces each step, so the others
need not know why it stops.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.errors import SpecError
from regard.nn.core.rng import use_seed

MIN_TOKENS = 512
"""Minimum number of padded tokens per thread: with fewer, overhead outweighs the work."""
Grads = list[Tensor | None]


class ThreadGroup:
    """Threads that divide the rows of a batch; a single one runs in the calling thread."""

    def __init__(self, count: int, threads: int) -> None:
        self.count = count
        if count > 1:
            self.pool = ThreadPoolExecutor(count, "shard", torch.set_num_threads, (max(threads // count, 1),))

    @staticmethod
    def choose(threads: int, tokens: int, device: str) -> ThreadGroup:
        """Use all threads, as far as batches of `tokens` give each enough to do."""
        return ThreadGroup(max(min(threads, tokens // MIN_TOKENS), 1) if device == "cpu" else 1, threads)

    def run(
        self, net: nn.Module, work: Callable[[T], tuple[Tensor, float]], parts: Sequence[tuple[T, int | None]]
    ) -> float:
        """Run `work` on each part, which returns a loss and a number; add up gradients in the weights, and the numbers.

        Each part comes with the seed of its randomness; without one, it draws from the global generator.
        """
        wanted = [p for p in net.parameters() if p.requires_grad]

        def one(part: tuple[T, int | None]) -> tuple[Grads, float]:
            with nullcontext() if part[1] is None else use_seed(part[1]):
                loss, number = work(part[0])
                return list(torch.autograd.grad(loss, wanted, allow_unused=True)), number

        total = 0.0
        for grads, number in (map if self.count == 1 else self.pool.map)(one, parts):
            _add(wanted, grads)
            total += number
        return total


def split_rows(rows: NDArray[np.int64], count: int) -> list[NDArray[np.int64]]:
    """Split the rows of a batch into `count` parts, or into as many as there are rows.

    Rows are dealt out one by one: neighbors have like lengths, so the parts have like shapes and share compiled kernels.
    """
    return [rows[i::count] for i in range(min(count, len(rows)))]


@torch.no_grad()
def _add(parameters: Sequence[nn.Parameter], grads: Grads) -> None:
    """Add gradients to those of the parameters."""
    for parameter, grad in zip(parameters, grads, strict=True):
        if grad is not None:
            parameter.grad = grad if parameter.grad is None else parameter.grad.add_(grad)


PATIENCE = datetime.timedelta(days=2)
"""Time that a process waits for another: the leader may be validating."""
T = TypeVar("T")


class ProcessGroup:
    """The processes of a run; by default a single one, which communicates with nobody."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    @staticmethod
    def join(device: str) -> ProcessGroup:
        """Join the processes that torchrun started, if it did."""
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size == 1:
            return ProcessGroup()
        if device != "cpu":
            raise SpecError(f"several processes can only train on the CPU so far, not on {device!r}; add --device cpu")
        if not dist.is_initialized():
            dist.init_process_group("gloo", timeout=PATIENCE)
        return ProcessGroup(dist.get_rank(), size)

    @property
    def is_leader(self) -> bool:
        """True if this is the process that validates, logs and writes."""
        return self.rank == 0

    def command_line(self, command: str) -> str:
        """The command line that starts a command in this many processes."""
        if self.size == 1:
            return command
        here = int(os.environ.get("LOCAL_WORLD_SIZE", self.size))
        machines = f"--nnodes {self.size // here} " if here < self.size else ""
        return f"torchrun {machines}--nproc-per-node {here} -m {command}"

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.size > 1:
            dist.barrier()

    def share(self, parts: Sequence[T]) -> list[T]:
        """The parts that this process works on."""
        return list(parts[self.rank :: self.size])

    def announce_step(self, number: int) -> int | None:
        """Sum a number over all processes at the start of a step; None if the leader takes no more steps."""
        if self.size == 1:
            return number
        said = torch.tensor([number, 0])
        dist.all_reduce(said)
        return None if said[1] else int(said[0])

    def __enter__(self) -> None:
        """The leader announces steps until the end of the block."""

    def __exit__(self, error: object, *_: object) -> None:
        if self.size > 1 and error is None:  # after an error this process exits, which the others notice
            dist.all_reduce(torch.tensor([0, 1]))

    @torch.no_grad()
    def sum_gradients(self, parameters: Sequence[nn.Parameter], number: float) -> float:
        """Sum all gradients, and a number, over the processes."""
        if self.size == 1:
            return number
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        flat = torch.cat([grad.reshape(-1) for grad in grads])
        total = torch.tensor(number, dtype=torch.float64)
        dist.all_reduce(flat)
        dist.all_reduce(total)
        for p, part in zip(parameters, torch.split(flat, [grad.numel() for grad in grads]), strict=True):
            p.grad = part.view_as(p)
        return float(total)
