"""Several processes on one run (`torchrun --nproc-per-node 2 -m regard train …`): the first leads, the others follow.

All hold the same weights and take the same steps. Of every update each works on its share of the rows, and gradients are
summed between them; only the leader judges, logs and writes. It calls each step, so the others need not know why it stops.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn

from regard.errors import SpecError

PATIENCE = datetime.timedelta(days=2)
"""How long a process waits for another: the leader may be judging."""
T = TypeVar("T")


class Ranks:
    """The processes of a run; alone, there is nobody to talk to."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    @staticmethod
    def joined(device: str) -> Ranks:
        """Those that torchrun started, if it did."""
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size == 1:
            return Ranks()
        if device != "cpu":
            raise SpecError(f"several processes train on processors alone so far, not on {device!r}; add --device cpu")
        if not dist.is_initialized():
            dist.init_process_group("gloo", timeout=PATIENCE)
        return Ranks(dist.get_rank(), size)

    @property
    def leads(self) -> bool:
        """Whether this is the process that judges, logs and writes."""
        return self.rank == 0

    def started_by(self, command: str) -> str:
        """The command line that starts as many processes of a command."""
        if self.size == 1:
            return command
        here = int(os.environ.get("LOCAL_WORLD_SIZE", self.size))
        machines = f"--nnodes {self.size // here} " if here < self.size else ""
        return f"torchrun {machines}--nproc-per-node {here} -m {command}"

    def wait(self) -> None:
        """Until all are here."""
        if self.size > 1:
            dist.barrier()

    def share(self, parts: Sequence[T]) -> list[T]:
        """What of these is this process's own."""
        return list(parts[self.rank :: self.size])

    def called(self, number: int) -> int | None:
        """The sum of every process's number, in a step that the leader calls; None if it calls no more."""
        if self.size == 1:
            return number
        said = torch.tensor([number, 0])
        dist.all_reduce(said)
        return None if said[1] else int(said[0])

    def __enter__(self) -> None:
        """The leader calls steps from here to the end of the block."""

    def __exit__(self, error: object, *_: object) -> None:
        if self.size > 1 and error is None:  # after an error this process ends, and the others notice
            dist.all_reduce(torch.tensor([0, 1]))

    @torch.no_grad()
    def summed(self, parameters: Sequence[nn.Parameter], number: float) -> float:
        """Sum all gradients between the processes, and a number."""
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
