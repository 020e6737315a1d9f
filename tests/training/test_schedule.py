"""Every schedule against its closed form, at its corners and along its way."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import SpecError, UnknownName
from regard.spec import Spec, spec
from regard.training.schedule import (
    SCHEDULES,
    Constant,
    Cosine,
    InverseSqrt,
    Linear,
    Paper,
    ScheduleSpec,
    StepDecay,
    Wsd,
)


@spec
class Recipe(Spec):
    schedule: ScheduleSpec


def rates(schedule: ScheduleSpec, *steps: int, total: int | None = None, width: int = 512) -> list[float]:
    return [schedule.rate(step, total=total, width=width) for step in steps]


def test_the_paper() -> None:
    """d^-0.5 · min(step^-0.5, step · warmup^-1.5), with the base model's width and warm-up."""
    steps = (1, 10, 3999, 4000, 4001, 100_000)
    wanted = [512**-0.5 * min(s**-0.5, s * 4000**-1.5) for s in steps]
    assert rates(Paper(), *steps) == pytest.approx(wanted, rel=1e-12)
    assert rates(Paper(), 4000) == pytest.approx([6.98771e-4], rel=1e-5)  # the peak everybody quotes: 7e-4
    assert rates(Paper(factor=2.0), *steps) == pytest.approx([2 * r for r in wanted], rel=1e-12)
    assert rates(Paper(), 7, width=2048)[0] == pytest.approx(rates(Paper(), 7)[0] / 2)


def test_inverse_sqrt_is_the_paper_with_its_peak_written_down() -> None:
    steps = (1, 5, 100, 101, 400, 10_000)
    same = InverseSqrt(lr=1 / math.sqrt(512 * 100), warmup=100)
    assert rates(same, *steps) == pytest.approx(rates(Paper(warmup=100), *steps))


def test_inverse_sqrt_warms_up_from_its_start() -> None:
    schedule = InverseSqrt(lr=1.0, warmup=10, start=0.2)
    assert rates(schedule, 1, 5, 10, 40, 90) == pytest.approx([0.28, 0.6, 1.0, 0.5, 1 / 3])


def test_cosine() -> None:
    schedule = Cosine(lr=2.0, warmup=10, min_lr_ratio=0.1)
    assert rates(schedule, 1, 5, 10, total=110) == pytest.approx([0.2, 1.0, 2.0])
    assert rates(schedule, 35, 60, 110, 200, total=110) == pytest.approx(
        [2 * (0.1 + 0.9 * (1 + math.sqrt(0.5)) / 2), 1.1, 0.2, 0.2]
    )


def test_linear() -> None:
    schedule = Linear(lr=2.0, warmup=10, min_lr_ratio=0.5)
    assert rates(schedule, 1, 10, 60, 110, 200, total=110) == pytest.approx([0.2, 2.0, 1.5, 1.0, 1.0])


def test_warm_up_stable_decay() -> None:
    schedule = Wsd(lr=1.0, warmup=10, decay=0.2)
    assert rates(schedule, 5, 10, 50, 80, 90, 100, total=100) == pytest.approx([0.5, 1, 1, 1, 0.5, 0])
    assert rates(Wsd(lr=1.0, decay=1.0, min_lr_ratio=0.5), 50, 100, total=100) == pytest.approx([0.75, 0.5])
    assert rates(Wsd(lr=1.0, decay=0.01), 1, 2, 3, total=3) == pytest.approx([1, 1, 0])


def test_step_decay() -> None:
    schedule = StepDecay(lr=2.0, every=10, first_steps=3, first_lr=1.0)
    assert rates(schedule, 1, 3, 4, 13, 14, 24) == pytest.approx([1, 1, 2, 2, 1, 0.5])


def test_constant() -> None:
    assert rates(Constant(lr=3.0, warmup=3), 1, 2, 3, 10**6) == pytest.approx([1, 2, 3, 3])
    assert rates(Constant(lr=3.0), 1) == [3.0]


@given(
    kind=st.sampled_from(list(SCHEDULES)),
    warmup=st.integers(1, 50),
    length=st.integers(1, 200),
    width=st.integers(1, 4096),
)
def test_all_rise_to_one_peak_at_the_end_of_warm_up_and_never_rise_again(
    kind: str, warmup: int, length: int, width: int
) -> None:
    total = 2 * warmup + length
    schedule = SCHEDULES[kind].parse({"warmup": warmup})
    curve = rates(schedule, *range(1, total + 10), total=total, width=width)
    assert max(curve) == pytest.approx(curve[warmup - 1])
    assert all(a < b for a, b in pairwise(curve[:warmup]))
    assert all(a >= b - 1e-15 for a, b in pairwise(curve[warmup - 1 :]))
    assert all(math.isfinite(rate) and rate >= 0 for rate in curve)


@pytest.mark.parametrize("kind", list(SCHEDULES))
def test_all_are_one_word_in_a_recipe_and_come_back_from_json(kind: str) -> None:
    schedule = ScheduleSpec.parse(kind)
    assert ScheduleSpec.parse(schedule.plain()) == schedule
    assert schedule.plain()["kind"] == kind


def test_another_kind_keeps_peak_and_warm_up() -> None:
    recipe = Recipe(Cosine(lr=1e-3, warmup=7))
    assert recipe.replace("schedule.kind", "linear") == Recipe(Linear(lr=1e-3, warmup=7))


@pytest.mark.parametrize("kind", ["cosine", "linear", "wsd"])
def test_a_falling_schedule_must_know_its_end(kind: str) -> None:
    with pytest.raises(SpecError, match=f"schedule '{kind}' needs the number of steps; set it"):
        rates(ScheduleSpec.parse(kind), 1)


@pytest.mark.parametrize("kind", ["cosine", "linear", "wsd"])
def test_warm_up_must_leave_steps(kind: str) -> None:
    with pytest.raises(
        SpecError,
        match=f"'{kind}' warms up for 10 steps, but there are only 10; lower that, for example with --set train.sch",
    ):
        rates(ScheduleSpec.parse({"kind": kind, "warmup": 10}), 1, total=10)


def test_warm_up_and_decay_must_fit() -> None:
    with pytest.raises(
        SpecError, match=r"cannot warm up for 60 steps and decay over 0\.5 of 100: together that is more"
    ):
        rates(Wsd(warmup=60, decay=0.5), 1, total=100)


@pytest.mark.parametrize("kind", list(SCHEDULES))
def test_steps_are_counted_from_one(kind: str) -> None:
    with pytest.raises(SpecError, match="steps are counted from 1, got step 0"):
        rates(ScheduleSpec.parse(kind), 0, total=10)


@pytest.mark.parametrize(
    ("plain", "words"),
    [
        ({"kind": "cosine", "lr": 0}, "lr: input should be greater than 0"),
        ({"kind": "cosine", "lr": math.inf}, "lr: input should be a finite number"),
        ({"kind": "linear", "min_lr_ratio": 1.5}, "min_lr_ratio: input should be less than or equal to 1"),
        ({"kind": "wsd", "decay": 0}, "decay: input should be greater than 0"),
        ({"kind": "paper", "warmup": 0}, "warmup: input should be greater than or equal to 1"),
        ({"kind": "inverse_sqrt", "start": -1}, "start: input should be greater than or equal to 0"),
        ({"kind": "constant", "warmpu": 3}, "no key 'warmpu'; did you mean 'warmup'"),
    ],
)
def test_what_makes_no_sense_is_refused(plain: dict[str, object], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        ScheduleSpec.parse(plain)


def test_an_unknown_schedule_offers_a_near_one() -> None:
    with pytest.raises(UnknownName, match="no schedule 'cosin'; did you mean 'cosine'"):
        ScheduleSpec.parse("cosin")
