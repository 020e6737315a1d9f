"""The forecast: of the right size, and without any trace in the run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from regard.training.step import time_estimate as module
from regard.training.step.time_estimate import BATCHES, MIN_STEPS, TimeLeft, estimate_seconds, time_steps
from regard.training.train import run_training
from tests.training.bare import trainer, weights
from tests.training.small import tiny


def test_it_is_the_seconds_of_a_step_times_their_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step, which also asks for memory, does not count, nor does one that was disturbed."""
    made = trainer(tmp_path, train__steps=1000, train__batch_tokens=64)
    ticking(monkeypatch, 0.9, 0.25, 0.25, 0.75, 0.25, 0.25)
    assert estimate_seconds(made) == 250.0


def test_a_slow_step_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = trainer(tmp_path, train__steps=1000, train__batch_tokens=64)
    ticking(monkeypatch, 11.0)
    assert estimate_seconds(made) == 11_000.0


def test_precisions_take_turns_on_the_same_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, seen = trainer(tmp_path, train__steps=1000, train__batch_tokens=64), []
    take = module.OptimizerSteps.take

    def spy(steps: Any, examples: Any, group: Any, **more: Any) -> Any:
        seen.append((steps.bf16, [rows.tolist() for rows in group]))
        return take(steps, examples, group, **more)

    monkeypatch.setattr(module.OptimizerSteps, "take", spy)
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: 0.0))  # however busy the machine is
    assert set(time_steps(made, ("float32", "bfloat16"))) == {"float32", "bfloat16"}
    plain, low = seen[::2], seen[1::2]
    assert [kind for kind, _ in plain] == [False] * (BATCHES + 1) and [kind for kind, _ in low] == [True] * (
        BATCHES + 1
    )
    assert [group for _, group in plain] == [group for _, group in low]
    assert len({str(group) for _, group in plain}) == BATCHES


def ticking(monkeypatch: pytest.MonkeyPatch, *steps: float) -> None:
    """Let the timed steps take so long, and nothing else any time; other modules keep their clock."""
    ticks = [0.0]
    for seconds in steps:
        ticks += [ticks[-1], ticks[-1] + seconds, ticks[-1] + seconds]
    times = iter(ticks)
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: next(times)))


def test_the_time_left_has_steps_validations_and_the_last_evaluation() -> None:
    left = TimeLeft(total=100, validate_every=30, beam=5)
    for _ in range(10):
        left.add_step(2.0)
    assert left.after(10) == 90 * 2.0  # nothing is known of validations yet
    left.add_validation(7.0)
    left.add_validation(3.0)
    assert left.after(30) == 70 * 2.0 + (3 + 5) * 3.0  # after steps 60, 90 and 100
    assert left.after(100) == 5 * 3.0 + 3.0


@pytest.mark.parametrize(
    "changes",
    [{}, {"train__optimizer": {"kind": "muon"}, "train__ema": 0.5}],
    ids=["plain", "muon"],
)
def test_it_leaves_no_trace(tmp_path: Path, changes: dict[str, Any]) -> None:
    made = trainer(tmp_path, train__steps=MIN_STEPS, model__dropout=0.1, **changes)
    before, chance = weights(made), torch.get_rng_state()
    assert estimate_seconds(made)
    assert all(torch.equal(before[name], p) for name, p in weights(made).items())
    assert all(p.grad is None for p in made.net.parameters())
    assert torch.equal(chance, torch.get_rng_state())
    assert not made.steps.optimizer.state and made.state.step == 0


def test_a_short_run_is_not_timed(tmp_path: Path) -> None:
    assert estimate_seconds(trainer(tmp_path, train__steps=MIN_STEPS - 1)) is None


def test_it_is_told_before_the_first_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    order = tiny(tmp_path, train__steps=MIN_STEPS, train__validate_every=MIN_STEPS // 2)
    run_training(dataclasses.replace(order, quiet=False))
    said = capsys.readouterr().err
    assert " s on this machine plus 2 validations; run folder" in said.split(f"step {MIN_STEPS // 2}/")[0]
    first, last = (line for line in said.splitlines() if line.startswith("step "))
    assert first.endswith(" s left") and "left" not in last
