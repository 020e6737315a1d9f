"""How long a run will take: before it starts, two steps of a copy of the model are timed; the run itself is not touched."""

from __future__ import annotations

import copy
import time

import torch

from regard.training.optimizer_step import OptimizerSteps
from regard.training.trainer import Trainer

FEW = 100
"""A run of fewer steps is over before a forecast helps."""
LONG = 10.0
"""A first step of so many seconds is not repeated."""


def estimate_seconds(trainer: Trainer) -> float | None:
    """Seconds that all steps of a run will take, validation aside; None if it is too short to ask."""
    if trainer.total < FEW:
        return None
    return trainer.total * _seconds_a_step(trainer)


def _seconds_a_step(trainer: Trainer) -> float:
    updates = trainer.updates(0)
    middle = sorted(updates, key=lambda group: sum(map(len, group)))[len(updates) // 2]
    group = [rows[:: trainer.steps.ranks.size] for rows in middle]  # the share of one process
    with torch.random.fork_rng(devices=[]):
        steps = OptimizerSteps(copy.deepcopy(trainer.net), trainer.task, trainer.train, bf16=trainer.steps.bf16)
        for _ in range(2):  # the first also asks for memory
            began = time.perf_counter()
            steps.take(trainer.fresh, group, number=1, rate=1e-5, first=True)
            seconds = time.perf_counter() - began
            if seconds > LONG:
                break
    return seconds
