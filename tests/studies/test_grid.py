"""The grid: cells run once, a refusal is a result, and a killed study goes on."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from regard.errors import DataError, RegardError, UnknownName
from regard.studies.grid import Cell, Grid
from regard.studies.preparation import Preparation, change
from regard.training.request import TrainRequest
from tests.faulty import PowerCut
from tests.training.small import COPY, TINY, stopping_after

LATER = {"train.steps": 8, "train.validate_every": 4, "train.save_every": 2}


def tiny_cell(name: str = "one", **changes: Any) -> Cell:
    settings = {**COPY, **TINY, **LATER} | {path.replace("__", "."): value for path, value in changes.items()}
    recipe, _ = Preparation().complete(TrainRequest("copy", set=settings))
    return Cell(name, "train", {"recipe": json.loads(recipe.json()), "tests": {"test": {}}, "metrics": ["exact"]})


def test_a_cell_runs_once(tmp_path: Path) -> None:
    said: list[str] = []
    grid, cells = Grid(tmp_path, say=said.append), [tiny_cell(), tiny_cell("two", train__seed=2)]
    assert [cell.name for cell in grid.missing(cells)] == ["one", "two"]
    found = grid.run(cells)
    assert [each.cell.name for each in found] == ["one", "two"]
    assert found[0].result["tests"]["test"]["scores"]["loss"] != found[1].result["tests"]["test"]["scores"]["loss"]
    assert len(found[0].result["tests"]["test"]["outputs"]) == 6
    assert [step for step, _, _ in found[0].result["curve"]] == [4, 8]
    assert said[0].startswith("cell 1 of 2: one, ")
    assert "exact" in said[0]
    assert not list((tmp_path / "work").iterdir())
    stamps = [grid.path(cell).stat().st_mtime_ns for cell in cells]
    assert [each.result for each in grid.run(cells)] == [each.result for each in found]
    assert [grid.path(cell).stat().st_mtime_ns for cell in cells] == stamps


def test_the_name_of_a_cell_tells_its_settings() -> None:
    assert tiny_cell().key == tiny_cell().key
    assert tiny_cell().key != tiny_cell(train__seed=2).key
    assert tiny_cell("Pre, seed 1").key.startswith("pre-seed-1-")


def test_an_interrupted_cell_goes_on_and_ends_the_same(tmp_path: Path) -> None:
    whole = Grid(tmp_path / "whole").run([tiny_cell()])[0]
    with stopping_after(5), pytest.raises(RegardError, match="stopped at step 5"):
        Grid(tmp_path / "parts").run([tiny_cell()])
    assert Grid(tmp_path / "parts").run([tiny_cell()])[0].result == whole.result


def test_work_that_a_kill_left_goes_and_work_that_was_kept_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, left = tiny_cell("kept"), tiny_cell("left", train__seed=2)
    Grid(tmp_path, keep=True).run([kept])

    def kill(_: object) -> None:
        raise PowerCut

    with monkeypatch.context() as patch, pytest.raises(PowerCut):
        patch.setattr("regard.studies.grid.shutil", SimpleNamespace(rmtree=kill))  # that of nobody else
        Grid(tmp_path).run([kept, left])
    assert len([path for path in (tmp_path / "work").iterdir() if path.is_dir()]) == 2
    Grid(tmp_path).run([kept, left])
    (stays,) = (tmp_path / "work").iterdir()
    assert stays.name.startswith("kept-")


def test_a_refusal_is_a_result(tmp_path: Path) -> None:
    cell = tiny_cell()
    recipe = cell.settings["recipe"]
    recipe["model"] = recipe["model"] | {"decoder": {"block": {"mix": {"kind": "linformer"}}}}
    found = Grid(tmp_path).run([cell])[0]
    assert found.error is not None
    assert "causal" in found.error
    assert Grid(tmp_path).missing([cell]) == []


def test_other_data_than_the_study_started_with_is_refused(tmp_path: Path) -> None:
    cell = tiny_cell()
    _, corpus = Preparation().complete(TrainRequest("copy", set={**COPY, **TINY, **LATER}))
    same = Cell("same", "train", {**cell.settings, "data": corpus.dataset.fingerprint})
    assert Grid(tmp_path).run([same])[0].error is None
    with pytest.raises(DataError, match="the training data changed since the study started, or this machine has other"):
        Grid(tmp_path).run([Cell("other", "train", {**cell.settings, "data": "0" * 16})])


def test_an_unknown_job_is_named() -> None:
    from regard.studies.jobs import find_job

    with pytest.raises(UnknownName, match="no job 'trian'; did you mean 'train'"):
        find_job("trian")


def test_children_find_the_same(tmp_path: Path) -> None:
    """Two cells, one child process: as in this process, to the last digit."""
    cells = [tiny_cell(), tiny_cell("two", train__seed=2)]
    here, apart = (Grid(tmp_path / str(n), processes=n).run(cells) for n in (0, 1))
    assert [each.result for each in here] == [each.result for each in apart]


def test_a_child_that_fails_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match="the cell 'one' failed: KeyError: 'recipe'; the same command continues"):
        Grid(tmp_path, processes=1).run([Cell("one", "train", {})])


def test_a_recipe_changes_by_path() -> None:
    recipe, corpus = Preparation().complete(TrainRequest("copy", set={**COPY, **TINY}))
    assert (recipe.train.precision, recipe.train.threads) == ("float32", 1)
    assert change(recipe, {"train.seed": 5, "model.width": 32}).model["width"] == 32
    assert 3 <= corpus.length <= 8
