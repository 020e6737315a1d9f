"""The forecast: of the right size, and without any trace in the run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.training import time_estimate as module
from regard.training.time_estimate import FEW, estimate_seconds
from regard.training.train import run_training
from tests.training.bare import trainer, weights
from tests.training.small import tiny


def test_it_is_the_seconds_of_a_step_times_their_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = trainer(tmp_path, train__steps=1000, train__batch_tokens=64)
    ticks = iter([0.0, 9.0, 10.0, 10.25])  # the first step also asks for memory
    monkeypatch.setattr(module.time, "perf_counter", lambda: next(ticks))
    assert estimate_seconds(made) == 250.0


def test_a_slow_step_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = trainer(tmp_path, train__steps=1000, train__batch_tokens=64)
    ticks = iter([0.0, 11.0])
    monkeypatch.setattr(module.time, "perf_counter", lambda: next(ticks))
    assert estimate_seconds(made) == 11_000.0


@pytest.mark.parametrize(
    "changes",
    [{}, {"train__optimizer": {"kind": "muon"}, "train__ema": 0.5}],
    ids=["plain", "muon"],
)
def test_it_leaves_no_trace(tmp_path: Path, changes: dict[str, Any]) -> None:
    made = trainer(tmp_path, train__steps=FEW, model__dropout=0.1, **changes)
    before, chance = weights(made), torch.get_rng_state()
    assert estimate_seconds(made)
    assert all(torch.equal(before[name], p) for name, p in weights(made).items())
    assert all(p.grad is None for p in made.net.parameters())
    assert torch.equal(chance, torch.get_rng_state())
    assert not made.steps.optimizer.state and made.now.step == 0


def test_a_short_run_is_not_timed(tmp_path: Path) -> None:
    assert estimate_seconds(trainer(tmp_path, train__steps=FEW - 1)) is None


def test_it_is_told_before_the_first_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    order = tiny(tmp_path, train__steps=FEW, train__validate_every=FEW)
    run_training(dataclasses.replace(order, quiet=False))
    said = capsys.readouterr().err
    assert " s on this machine plus validation; run folder" in said.split(f"step {FEW}/")[0]
