"""Estimate how long a run will take.

Two steps of a copy of the model are timed before the run starts; the run itself is not affected.
"""

from __future__ import annotations

import copy
import time

import torch

from regard.training.optimizer_step import OptimizerSteps
from regard.training.trainer import Trainer

FEW = 100
"""Shorter runs need no estimate."""
LONG = 10.0
"""Seconds of a first step beyond which it is not repeated."""


def estimate_seconds(trainer: Trainer) -> float | None:
    """Estimated seconds of all steps, without validation; None for a short run."""
    if trainer.total < FEW:
        return None
    return trainer.total * _seconds_per_step(trainer)


def _seconds_per_step(trainer: Trainer) -> float:
    updates = trainer.updates(0)
    middle = sorted(updates, key=lambda group: sum(map(len, group)))[len(updates) // 2]
    group = [rows[:: trainer.steps.ranks.size] for rows in middle]  # the share of one process
    with torch.random.fork_rng(devices=[]):
        steps = OptimizerSteps(copy.deepcopy(trainer.net), trainer.task, trainer.train, bf16=trainer.steps.bf16)
        for _ in range(2):  # the first one also allocates memory
            began = time.perf_counter()
            steps.take(trainer.fresh, group, number=1, rate=1e-5, first=True)
            seconds = time.perf_counter() - began
            if seconds > LONG:
                break
    return seconds
