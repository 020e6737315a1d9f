"""Whatever file of a run is damaged: it is made again from what is whole, or a message says what to do, and that works."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regard.errors import CheckpointError
from regard.files.folder import find_fault
from regard.serialization.model_folder import find_model
from regard.training.request import TrainRequest
from regard.training.run.checkpoint import Checkpoints
from regard.training.run.run_folder import _render_facts, read_facts
from regard.training.train import run_training
from tests.training.harm import HARMS, RUNS, STATES, Patient, weights
from tests.training.small import events, stopped, tiny, traces

AVERAGE = {"which": "last", "count": 3}


@pytest.fixture(scope="module")
def patients(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Patient]:
    """A run that was stopped, and one that is done."""
    folder = tmp_path_factory.mktemp("runs")
    return {state: Patient(folder / state, RUNS["plain"], state) for state in STATES}


@pytest.mark.parametrize("state", STATES)
def test_no_harm_to_any_file_is_silent(patients: dict[str, Patient], tmp_path: Path, state: str) -> None:
    """Each file in one of the ways; `python -m tests.training.harm` tries all of them on more kinds of runs."""
    patient, draw = patients[state], random.Random(1)
    left_out = ("tokens", "report.html", "step-00000004")  # of two checkpoints the newer one will do
    files = [file for file in patient.files() if not {*file.parts} & {*left_out}]
    assert {"run.json", "recipe.yaml", "log.jsonl", "vocabulary", "checkpoints", "best"} <= {f.parts[0] for f in files}
    for file, how in zip(files, itertools.cycle(HARMS.values()), strict=False):
        patient.harm(tmp_path / "harmed", file, how, draw)


def flip(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :])


def delete(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def copy(patient: Patient, tmp_path: Path) -> TrainRequest:
    """A loud request for a copy of a run."""
    shutil.copytree(patient.folder, tmp_path / "run")
    return dataclasses.replace(patient.request(tmp_path / "run"), quiet=False)


@pytest.mark.parametrize(
    ("name", "how", "said"),
    [
        ("final/model.safetensors", flip, "final is damaged: model.safetensors has changed since it was written"),
        ("final/README.md", delete, "final is damaged: README.md is missing"),
        ("final/manifest.json", delete, "final is damaged: manifest.json is missing"),
        ("final/manifest.json", flip, "final"),
        ("final", delete, "final is missing"),
    ],
)  # fmt: skip
def test_a_finished_run_whose_final_model_is_damaged_writes_it_again(
    patients: dict[str, Patient], tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, how: Any, said: str
) -> None:
    request = copy(patients["done"], tmp_path)
    how(tmp_path / "run" / name)
    with pytest.raises(CheckpointError, match="run the command that trained it again"):
        find_model(tmp_path / "run")  # not best/ in its place
    run_training(request)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.endswith("; writing it again")]
    assert len(lines) == 1 and said in lines[0]
    assert find_fault(tmp_path / "run" / "final") is None
    assert traces(tmp_path / "run") == traces(patients["done"].folder), "and the log has one end"


@pytest.mark.parametrize(
    ("name", "how", "said"),
    [
        ("best/model.safetensors", flip, "best is damaged: model.safetensors has changed .*; written again from other"),
        ("best", delete, "best is missing; written again from other files of this run"),
        ("vocabulary/manifest.json", delete, "vocabulary is damaged: manifest.json is missing; written again from"),
        ("vocabulary", delete, "vocabulary is missing; written again from .*step-00000005"),
        ("run.json", delete, "run.json is missing; run.json and recipe.yaml were written again from .*step-00000005"),
        ("run.json", flip, r"run.json is damaged: .*; run.json and recipe.yaml were written again"),
        ("recipe.yaml", flip, r"recipe.yaml is damaged: it has changed .*; run.json and recipe.yaml were written again"),
        ("log.jsonl", delete, "log.jsonl is damaged or incomplete: only events that can be read are kept"),
    ],
)  # fmt: skip
def test_what_was_made_again_is_said(
    patients: dict[str, Patient], tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, how: Any, said: str
) -> None:
    request = copy(patients["stopped"], tmp_path)
    how(tmp_path / "run" / name)
    run_training(request)
    output = capsys.readouterr().err
    assert re.search(said, output), output
    assert weights(tmp_path / "run") == patients["stopped"].whole


def test_a_description_that_somebody_edited_is_not_lost(patients: dict[str, Patient], tmp_path: Path) -> None:
    request, recipe = copy(patients["stopped"], tmp_path), tmp_path / "run" / "recipe.yaml"
    whole = recipe.read_bytes()
    recipe.write_bytes(whole + b"# mine\n")
    run_training(request)
    assert recipe.read_bytes() == whole
    assert recipe.with_name("recipe.yaml.corrupt").read_bytes() == whole + b"# mine\n"
    run_training(dataclasses.replace(request, fresh=True))
    assert not recipe.with_name("recipe.yaml.corrupt").exists()


def test_a_kill_between_run_json_and_recipe_leaves_nothing_aside(patients: dict[str, Patient], tmp_path: Path) -> None:
    """A run that becomes longer describes itself anew, run.json first: it is whole, and nobody has edited it."""
    shutil.copytree(patients["stopped"].folder, tmp_path / "run")
    facts = {**read_facts(tmp_path / "run"), "command": "regard train longer"}
    (tmp_path / "run" / "run.json").write_text(_render_facts(facts, hashlib.sha256(b"the recipe to come").hexdigest()))
    run_training(patients["stopped"].request(tmp_path / "run"))
    assert weights(tmp_path / "run") == patients["stopped"].whole
    assert not [*(tmp_path / "run").glob("*.corrupt")]


@pytest.mark.parametrize("how", [flip, delete, lambda path: path.write_bytes(b"")])
def test_fresh_needs_no_whole_run_json(
    patients: dict[str, Patient], tmp_path: Path, how: Callable[[Path], None]
) -> None:
    request = copy(patients["stopped"], tmp_path)
    how(tmp_path / "run" / "run.json")
    run_training(dataclasses.replace(request, fresh=True))
    assert weights(tmp_path / "run") == patients["stopped"].whole


def test_a_run_that_saved_no_checkpoint_is_recognized_by_its_vocabulary(tmp_path: Path) -> None:
    request = stopped(tiny(tmp_path, train__validate_every=2), 3)
    shutil.rmtree(tmp_path / "checkpoints")
    (tmp_path / "run.json").write_bytes(b"\0")
    with pytest.raises(CheckpointError, match=r"run\.json is damaged: .*; start over with --fresh"):
        run_training(request)
    run_training(dataclasses.replace(request, fresh=True))


def test_what_no_file_has_any_more_is_left_out_only_when_told_so(tmp_path: Path) -> None:
    """A snapshot, and the best model, of a step whose checkpoint is gone."""
    request = stopped(tiny(tmp_path, train__average=AVERAGE, train__validate_every=2, train__save_every=2), 9)
    (before,) = [s for s in Checkpoints(tmp_path / "checkpoints").facts() if s["step"] == 9]
    oldest = before["snapshots"][0][0]
    assert oldest not in Checkpoints(tmp_path / "checkpoints").steps()
    flip(tmp_path / "snapshots" / f"step-{oldest:08d}" / "weights.safetensors")
    with pytest.raises(CheckpointError, match=rf"step-{oldest:08d} is damaged: .* continue without them with --anyway"):
        run_training(request)
    with pytest.raises(CheckpointError, match="Start over with --fresh, or continue without"):
        run_training(request)
    run_training(dataclasses.replace(request, anyway=True))
    assert [event["step"] for event in events(tmp_path, "lost")] == [9]
    run_training(request)  # from now on, this is the run


def test_a_best_model_that_is_lost_is_chosen_again(tmp_path: Path) -> None:
    request = stopped(tiny(tmp_path, train__validate_every=2, train__save_every=2, train__schedule__lr=1e-9), 9)
    state = Checkpoints(tmp_path / "checkpoints").load_newest()
    assert state is not None
    if state.facts["best_step"] in (8, 9):
        pytest.fail("the best model is in a checkpoint")
    flip(tmp_path / "best" / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"best is damaged: .*later validations decide which model is the best"):
        run_training(request)
    run_training(dataclasses.replace(request, anyway=True))
    assert find_fault(tmp_path / "best") is None and find_fault(tmp_path / "final") is None
    run_training(request)


@pytest.mark.parametrize("name", ["final", "best"])
def test_without_checkpoints_the_model_that_is_whole_is_named(
    patients: dict[str, Patient], tmp_path: Path, name: str
) -> None:
    request = copy(patients["done"], tmp_path)
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    other = {"final": "best", "best": "final"}[name]
    flip(tmp_path / "run" / name / "model.safetensors")
    if name == "best":
        run_training(request)  # the result is whole
        return
    with pytest.raises(CheckpointError, match=f"--from {tmp_path / 'run' / other} and another --out"):
        run_training(request)
    settings = {key: value for key, value in request.set.items() if not key.startswith("model.")}
    start, out = str(tmp_path / "run" / other), str(tmp_path / "new")
    run_training(dataclasses.replace(request, set=settings, start=start, out=out))


def test_nothing_half_written_stays(patients: dict[str, Patient], tmp_path: Path) -> None:
    request, run = copy(patients["stopped"], tmp_path), tmp_path / "run"
    for name in ("run.json", "recipe.yaml", "log.jsonl", "report.html"):
        (run / f".{name}.partial").write_text("half")
    for name in ("best", "final", "vocabulary"):
        (run / f".{name}.partial").mkdir()
    run_training(request)
    assert not list(run.rglob(".*"))
    assert weights(run) == patients["stopped"].whole


def test_a_finished_run_is_still_extended(patients: dict[str, Patient], tmp_path: Path) -> None:
    request = copy(patients["done"], tmp_path)
    flip(tmp_path / "run" / "final" / "model.safetensors")
    flip(tmp_path / "run" / "best" / "config.json")
    run_training(dataclasses.replace(request, set={**request.set, "train.steps": 9}))
    assert [event["step"] for event in events(tmp_path / "run", "done")] == [6, 9]


def test_an_end_that_the_log_does_not_tell_right_is_told_again(patients: dict[str, Patient], tmp_path: Path) -> None:
    """One digit of a score in the last line: the score is not believed, and there is one end afterwards."""
    request, log = copy(patients["done"], tmp_path), tmp_path / "run" / "log.jsonl"
    *lines, last = log.read_text().splitlines()
    at = last.index('"loss": ') + 8
    log.write_text("\n".join([*lines, last[:at] + ("1" if last[at] != "1" else "2") + last[at + 1 :]]) + "\n")
    run_training(request)
    assert traces(tmp_path / "run") == traces(patients["done"].folder)
