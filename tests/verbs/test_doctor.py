"""`regard doctor`: healthy here, and plain words where it is not."""

from __future__ import annotations

import json
import sys

import pytest
import torch

from regard.api import doctor
from regard.errors import name_extra
from tests.verbs.calling import call

SMALLER = "no NVIDIA GPU here: the build from https://download.pytorch.org/whl/cpu is smaller"


def test_healthy_here() -> None:
    said = call("doctor")
    assert (said.code, said.err) == (0, "")
    assert all(line.startswith("ok  ") for line in said.lines)
    assert any(line.split()[1:3] == ["torch", torch.__version__] for line in said.lines)
    assert said.lines[-1] == "ok  a small model        runs forward and backward"


@pytest.mark.parametrize(
    ("cuda", "hip", "gpu", "wanted"),
    [
        (None, None, False, f"CPU ({torch.__version__})"),
        ("12.8", None, True, f"CUDA 12.8 ({torch.__version__})"),
        ("12.8", None, False, f"CUDA 12.8 ({torch.__version__}); {SMALLER}"),
        (None, "6.4", False, f"ROCm 6.4 ({torch.__version__})"),
    ],
)  # fmt: skip
def test_which_build_of_torch(
    monkeypatch: pytest.MonkeyPatch, cuda: str | None, hip: str | None, gpu: bool, wanted: str
) -> None:
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    assert f"ok  torch build          {wanted}" in call("doctor").lines


def test_for_programs() -> None:
    said = call("doctor", "--json")
    found = json.loads(said.out)
    assert said.code == 0
    assert {"python", *doctor.NEEDED, "processor", "device"} <= {finding["what"] for finding in found}
    assert all(finding["healthy"] for finding in found)


@pytest.mark.parametrize("name", ["sacrebleu", "torch", "ruamel.yaml"])
def test_a_missing_library(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    said = call("doctor")
    assert (said.code, said.err) == (1, "")
    (bad,) = [line for line in said.lines if not line.startswith("ok  ")]
    assert bad.startswith(f"BAD {name} ")
    assert "cannot be imported" in bad
    assert bad.endswith(f"pip install '{name}'")


def test_an_extra_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(doctor.EXTRAS, "plots", "no_such_library")
    said = call("doctor")
    assert said.code == 0
    assert f"extra plots          not installed; {name_extra('plots')}" in said.out


def test_a_machine_that_cannot_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("illegal instruction")

    monkeypatch.setattr(torch.Tensor, "backward", fail)
    said = call("doctor")
    assert said.code == 1
    assert "BAD a small model        cannot run: illegal instruction" in said.out


def test_gradients_that_are_not_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "isfinite", lambda t: torch.zeros_like(t, dtype=torch.bool))
    said = call("doctor")
    assert said.code == 1
    assert "gives gradients that are not finite" in said.out
