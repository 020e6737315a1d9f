"""`train.precision: auto`: measured once where the processor has native bfloat16, kept in the run, and without a trace."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from regard import machine
from regard.errors import Interrupted
from regard.training import prepare, train
from regard.training.run.log import read_log
from regard.training.step.time_estimate import MIN_STEPS
from regard.training.train import run_training
from tests.training.small import stopping_after, tiny

pytestmark = pytest.mark.numeric

Force = Callable[[str | None], None]
LONG: dict[str, Any] = {
    "train__steps": MIN_STEPS,
    "train__validate_every": MIN_STEPS // 2,
    "train__save_every": 10,
    "model__dropout": 0.1,
}


@pytest.fixture
def faster(monkeypatch: pytest.MonkeyPatch) -> Force:
    """Let one precision be the faster one on a processor with native bfloat16; with None, whoever measures fails."""
    native = dataclasses.replace(machine.machine(), bf16=True)
    real = prepare.time_steps

    def force(winner: str | None) -> None:
        def timed(trainer: Any, names: tuple[str, ...]) -> dict[str, float]:
            assert winner is not None, "this run should not measure"
            real(trainer, names)
            return {name: 0.5 if name == winner else 0.75 for name in names}

        monkeypatch.setattr(machine, "machine", lambda: native)
        monkeypatch.setattr(train, "precision", lambda asked, device: asked)
        monkeypatch.setattr(prepare, "time_steps", timed)

    return force


def facts(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "run.json").read_text())
    return found


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "final" / "model.safetensors")


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_the_faster_one_is_taken_told_and_kept(
    tmp_path: Path, faster: Force, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    faster(kind)
    run_training(dataclasses.replace(tiny(tmp_path / "a", train__precision="auto", **LONG), quiet=False))
    other = {"float32": "bfloat16", "bfloat16": "float32"}[kind]
    said = capsys.readouterr().err
    assert f"chosen: {kind}, 0.5 s per step on this machine against 0.75 s in {other} (set train.precision" in said
    assert f"parameters, {kind}, on" in said and "about 50.0 s on this machine plus 2 validations" in said
    assert facts(tmp_path / "a")["precision"] == kind
    assert facts(tmp_path / "a")["seconds_per_step"] == {kind: 0.5, other: 0.75}
    start = next(event for event in read_log(tmp_path / "a" / "log.jsonl") if event["event"] == "start")
    assert start["precision"] == kind and start["seconds_per_step"][other] == 0.75

    faster(None)  # set by hand: nothing is measured, and the weights are those of the run that did
    run_training(tiny(tmp_path / "b", train__precision=kind, **LONG))
    one, two = weights(tmp_path / "a"), weights(tmp_path / "b")
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert "seconds_per_step" not in facts(tmp_path / "b")


def test_a_run_that_goes_on_does_not_measure_on_any_processor(
    tmp_path: Path, faster: Force, monkeypatch: pytest.MonkeyPatch
) -> None:
    faster("bfloat16")
    request = tiny(tmp_path / "run", train__precision="auto", **LONG)
    with stopping_after(12), pytest.raises(Interrupted):
        run_training(request)
    faster(None)
    slow = {"auto": "float32"}  # one without bfloat16
    monkeypatch.setattr(train, "precision", lambda asked, device: slow.get(asked, asked))
    run_training(request)
    assert facts(tmp_path / "run")["precision"] == "bfloat16"
    run_training(tiny(tmp_path / "whole", train__precision="bfloat16", **LONG))
    one, two = weights(tmp_path / "run"), weights(tmp_path / "whole")
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_short_run_is_not_worth_it(tmp_path: Path, faster: Force) -> None:
    faster(None)
    run_training(tiny(tmp_path / "run", train__precision="auto"))
    assert facts(tmp_path / "run")["precision"] == "float32"


def test_one_that_starts_over_measures_again(tmp_path: Path, faster: Force) -> None:
    for kind in ("bfloat16", "float32"):
        faster(kind)
        request = tiny(tmp_path / "run", train__precision="auto", **LONG)
        run_training(dataclasses.replace(request, fresh=True))
        assert facts(tmp_path / "run")["precision"] == kind
