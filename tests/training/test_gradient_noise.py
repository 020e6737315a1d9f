"""Gradient noise: of the size that was asked for, and a function of seed and step."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from regard.training.step.gradients import add_gradient_noise
from regard.training.train import run_training
from tests.training.small import interrupted, tiny, traces

pytestmark = pytest.mark.numeric


def noise(step: int = 1, seed: int = 1, scale: float = 0.5) -> torch.Tensor:
    net = nn.ModuleList([nn.Linear(100, 100, bias=False), nn.Linear(2, 2)])
    net[0].weight.grad = torch.zeros(100, 100)  # type: ignore[union-attr, assignment]
    add_gradient_noise(net, scale, seed=seed, step=step)
    assert net[1].weight.grad is None, "what has no gradient gets none"
    grad = net[0].weight.grad
    assert isinstance(grad, torch.Tensor)
    return grad


def test_its_size_falls_with_the_fourth_root_of_the_step() -> None:
    for step, wanted in ((1, 0.5), (16, 0.25), (10_000, 0.05)):
        assert float(noise(step).std()) == pytest.approx(wanted, rel=0.05)
        assert abs(float(noise(step).mean())) < wanted / 20


def test_it_is_a_function_of_seed_and_step() -> None:
    first = noise()
    assert torch.equal(first, noise())
    assert not torch.equal(first, noise(seed=2))
    assert not torch.equal(first, 2 * noise(step=16))


def test_a_resumed_run_is_one_that_never_stopped(tmp_path: Path) -> None:
    changes = {"train__gradient_noise": 0.1, "data__curriculum": {"start": 3, "steps": 6}}
    run_training(tiny(tmp_path / "whole", **changes))
    interrupted(tiny(tmp_path / "stopped", **changes), 2, 7)
    assert traces(tmp_path / "stopped") == traces(tmp_path / "whole")
    run_training(tiny(tmp_path / "without", data__curriculum={"start": 3, "steps": 6}))
    assert traces(tmp_path / "without")["bits"] != traces(tmp_path / "whole")["bits"]
