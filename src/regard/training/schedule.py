"""Learning-rate schedules: rate as a function of the step.

Steps are counted from 1, as in the formula of "Attention Is All You Need". A warm-up rises linearly and reaches the peak at
step `warmup`; a schedule that decays reaches its minimum at the last step.
"""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field

from regard.errors import SpecError
from regard.registry import Registry, kind_of
from regard.spec import Count, Spec, spec

SCHEDULES: Registry[type[ScheduleSpec]] = Registry("schedule")

Steps = Annotated[int, Field(ge=0)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Start = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Ratio = Annotated[float, Field(ge=0, le=1)]
"""The lowest rate, relative to the peak."""
Part = Annotated[float, Field(gt=0, le=1)]


class ScheduleSpec(Spec):
    """A learning-rate schedule."""

    registry = SCHEDULES

    def rate(self, step: int, *, total: int | None, width: int) -> float:
        """The rate of step 1, 2, … of `total` (None: open-ended) for a model of this width."""
        raise NotImplementedError


@SCHEDULES.add(also=("noam",))
@spec
class Paper(ScheduleSpec):
    """Warm-up, then 1/√step, scaled by the model's width (Vaswani et al. 2017, equation 3)."""

    factor: Rate = 1.0
    warmup: Count = 4000

    def rate(self, step: int, *, total: int | None, width: int) -> float:
        rise = _check_step(step) / (self.warmup * math.sqrt(self.warmup))
        return self.factor / math.sqrt(width) * min(1 / math.sqrt(step), rise)


@SCHEDULES.add(also=("inverse_square_root", "rsqrt"))
@spec
class InverseSqrt(ScheduleSpec):
    """Warm-up from `start` to `lr`, then 1/√step: the paper's schedule with an explicit peak."""

    lr: Rate = 5e-4
    warmup: Count = 4000
    start: Start = 0.0

    def rate(self, step: int, *, total: int | None, width: int) -> float:
        if _check_step(step) < self.warmup:
            return self.start + (self.lr - self.start) * step / self.warmup
        return self.lr * math.sqrt(self.warmup / step)


@SCHEDULES.add
@spec
class Constant(ScheduleSpec):
    """Warm-up, then constant `lr`."""

    lr: Rate = 5e-4
    warmup: Steps = 0

    def rate(self, step: int, *, total: int | None, width: int) -> float:
        return self.lr * _warmup_share(step, self.warmup)


@SCHEDULES.add
@spec
class Cosine(ScheduleSpec):
    """Warm-up, then half a cosine from `lr` to `min_lr_ratio` of it (Loshchilov & Hutter 2017, without restarts)."""

    lr: Rate = 5e-4
    warmup: Steps = 0
    min_lr_ratio: Ratio = 0.0

    def rate(self, step: int, *, total: int | None, width: int) -> float:
        fallen = _share_between(step, self.warmup, _check_total(self, total, after=self.warmup))
        left = 0.5 * (1 + math.cos(math.pi * fallen))
        return self.lr * _warmup_share(step, self.warmup) * (self.min_lr_ratio + (1 - self.min_lr_ratio) * left)


@SCHEDULES.add
@spec
class Linear(ScheduleSpec):
    """Warm-up, then linear decay from `lr` to `min_lr_ratio` of it."""

    lr: Rate = 5e-4
    warmup: Steps = 0
    min_lr_ratio: Ratio = 0.0

    def rate(self, step: int, *, total: int | None, width: int) -> float:
        fallen = _share_between(step, self.warmup, _check_total(self, total, after=self.warmup))
        return self.lr * _warmup_share(step, self.warmup) * (1 - (1 - self.min_lr_ratio) * fallen)


@SCHEDULES.add(also=("trapezoidal", "warmup_stable_decay"))
@spec
class Wsd(ScheduleSpec):
    """Warm-up, stable, decay: constant `lr`, then linear decay over the last `decay` of all steps (Hu et al. 2024)."""

    lr: Rate = 5e-4
    warmup: Steps = 0
    decay: Part = 0.2
    min_lr_ratio: Ratio = 0.0

    def rate(self, step: int, *, total: int | None, width: int) -> float:
        total = _check_total(self, total, after=self.warmup)
        turn = total - max(1, round(self.decay * total))
        if turn < self.warmup:
            raise SpecError(
                f"schedule 'wsd' cannot warm up for {self.warmup} steps and decay over {self.decay:g} of {total}: "
                "together that is more than all steps; shorten one"
            )
        return (
            self.lr
            * _warmup_share(step, self.warmup)
            * (1 - (1 - self.min_lr_ratio) * _share_between(step, turn, total))
        )


@SCHEDULES.add
@spec
class StepDecay(ScheduleSpec):
    """Warm-up, then `lr` times `factor` once in `every` steps. The `first_steps` have a rate of their own (linear start)."""

    lr: Rate = 5e-4
    warmup: Steps = 0
    every: Count = 1000
    """Number of steps between two falls."""
    factor: Part = 0.5
    first_steps: Steps = 0
    """Number of steps at the beginning that have a rate of their own."""
    first_lr: Rate = 5e-4
    """Learning rate of these first steps."""

    def rate(self, step: int, *, total: int | None, width: int) -> float:
        if _check_step(step) <= self.first_steps:
            return self.first_lr
        step -= self.first_steps
        return (
            self.lr * _warmup_share(step, self.warmup) * self.factor ** (max(step - 1 - self.warmup, 0) // self.every)
        )


def _check_step(step: int) -> int:
    if step < 1:
        raise SpecError(f"steps are counted from 1, got step {step}")
    return step


def _warmup_share(step: int, warmup: int) -> float:
    """The share of the warm-up that is done, at most 1."""
    return min(1.0, _check_step(step) / max(1, warmup))


def _share_between(step: int, begin: int, end: int) -> float:
    """The position of a step between two others, from 0 to 1."""
    return min(1.0, max(0.0, (step - begin) / max(1, end - begin)))


def _check_total(schedule: ScheduleSpec, total: int | None, *, after: int) -> int:
    """The number of steps, which a decaying schedule needs and which must be larger than the warm-up."""
    kind = kind_of(type(schedule))
    if total is None:
        raise SpecError(f"schedule {kind!r} needs the number of steps; set it, or use 'inverse_sqrt' or 'constant'")
    if total <= after:
        raise SpecError(
            f"schedule {kind!r} warms up for {after} steps, but there are only {total}; "
            f"lower that, for example with --set train.schedule.warmup={total // 10}"
        )
    return total
