"""What `regard run` takes for a model: a folder that is whole, or that of a run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.verbs.calling import call

pytestmark = pytest.mark.numeric


@pytest.fixture
def broken(model: Path, tmp_path: Path) -> Path:
    """A copy of the model to break."""
    shutil.copytree(model / "final", tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "manifest.json"])
def test_a_damaged_model(broken: Path, name: str) -> None:
    data = (broken / name).read_bytes()
    (broken / name).write_bytes(data[:-9] + b"X" + data[-8:])
    said = call("run", broken, "abc")
    assert (said.code, said.out) == (3, "")
    assert name in said.err
    assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize("name", ["model.safetensors", "manifest.json"])
def test_a_model_without_one_of_its_files(broken: Path, name: str) -> None:
    (broken / name).unlink()
    said = call("run", broken, "abc")
    assert said.code == 3
    assert name in said.err


def test_pickles_are_refused(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    said = call("run", tmp_path, "abc")
    assert said.code == 3
    assert "loading a pickle can execute arbitrary code" in said.err


def test_no_such_model(tmp_path: Path) -> None:
    said = call("run", tmp_path / "nowhere", "abc")
    assert (said.code, said.err) == (2, f"regard: there is no model folder {tmp_path / 'nowhere'}\n")


def test_a_run_that_has_no_model_yet(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("task: translate\n")
    said = call("run", tmp_path, "abc")
    assert said.code == 3
    assert "is a run that has not started; train it first" in said.err
    (tmp_path / "checkpoints").mkdir()
    assert "has not validated yet; let it train longer" in call("run", tmp_path, "abc").err


def test_a_model_folder_and_its_run_folder_are_the_same_model(model: Path) -> None:
    assert call("run", model / "final", "abc") == call("run", model, "abc")
