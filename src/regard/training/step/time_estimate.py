"""Duration of a run, and in which precision it is shorter.

A few steps are timed on a copy of the model before the run starts; the run itself is not touched. Once it trains, the time
left follows from what its steps and validations really took.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from regard.training.step.optimizer_step import OptimizerSteps

if TYPE_CHECKING:
    from regard.training.trainer import Trainer

MAX_SORTED = 1000
"""Maximum number of batches among which small and large ones are chosen."""
MIN_STEPS = 100
"""Shorter runs are not timed: they are over before it pays."""
BATCHES, BUDGET = 5, 4.0
"""Different batches that are timed, as each shape has its own kernels; and seconds after which no further one is."""


def time_steps(trainer: Trainer, precisions: Sequence[str]) -> dict[str, float]:
    """Median seconds of a step in each precision, taking turns on the same batches.

    The first batch also pays for memory and counts only if there is no time for another.
    """
    updates = trainer.updates(0)
    updates = sorted(updates[:: len(updates) // MAX_SORTED + 1], key=lambda group: sum(map(len, group)))
    spread = [updates[len(updates) * (2 * i + 1) // (2 * BATCHES)] for i in range(BATCHES)]
    seconds: dict[str, list[float]] = {precision: [] for precision in precisions}
    with torch.random.fork_rng(devices=[]):
        steps = OptimizerSteps(copy.deepcopy(trainer.net), trainer.task, trainer.train)
        began = time.perf_counter()
        for update in (spread[BATCHES // 2], *spread):
            group = [rows[:: trainer.steps.process_group.size] for rows in update]  # the share of one process
            for precision in precisions:
                steps.bf16, started = precision == "bfloat16", time.perf_counter()
                steps.take(trainer.fresh, group, number=1, rate=1e-5, first=True)
                seconds[precision].append(time.perf_counter() - started)
            if time.perf_counter() - began > BUDGET:
                break
    return {precision: statistics.median(taken[1:] or taken) for precision, taken in seconds.items()}


def estimate_seconds(trainer: Trainer) -> float | None:
    """Seconds that all steps of a run will take; None if it is too short to ask."""
    if trainer.total < MIN_STEPS:
        return None
    precision = "bfloat16" if trainer.steps.bf16 else "float32"
    return trainer.total * time_steps(trainer, [precision])[precision]


class TimeLeft:
    """Seconds until a run is done, by what this process saw of it: steps, validations, and the last evaluation."""

    def __init__(self, total: int, validate_every: int, beam: int) -> None:
        self.total, self.validate_every, self.beam = total, validate_every, beam
        self.steps, self.step_seconds, self.validation_seconds = 0, 0.0, 0.0

    def add_step(self, seconds: float) -> None:
        self.steps += 1
        self.step_seconds += seconds

    def add_validation(self, seconds: float) -> None:
        """Keep only the newest: early models write until they are stopped, so the first takes longest."""
        self.validation_seconds = seconds

    def after(self, step: int) -> float:
        """Seconds left after a step; the final evaluation searches with the recipe's beam, others greedily."""
        validations = -(-self.total // self.validate_every) - step // self.validate_every
        each = self.step_seconds / max(self.steps, 1)
        return (self.total - step) * each + (validations + self.beam) * self.validation_seconds
