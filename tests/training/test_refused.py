"""A run folder holds one run: what it refuses, and what it begins anew."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

import regard
from regard.errors import CheckpointError, DataError, RegardError, SpecError
from regard.recipes.merge import parse_yaml
from regard.training.recipe import Recipe
from regard.training.run.checkpoint import Checkpoints
from regard.training.run.lock import RunLock
from regard.training.run.run_folder import FIXED, move_aside, open_run, save_facts
from regard.training.train import run_training
from tests.training.small import ROWS, on_files, stopped, tiny, traces


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model__dropout": 0.5}, "model.dropout: 0.0 -> 0.5"),
        ({"train__seed": 2}, "train.seed: 1 -> 2"),
        ({"decode__beam": 2}, "decode.beam: 1 -> 2"),
        ({"train__schedule": {"kind": "constant"}}, "train.schedule.kind: 'cosine' -> 'constant'; "),
        (
            {"data__generate__count": 61},
            "data.generate.count: 60 -> 61; the corpus is not the one this run started with",
        ),
        ({"train__threads": 2}, "train.threads: 1 -> 2; threads: 1 -> 2"),
        ({"train__precision": "bfloat16"}, "precision: float32 -> bfloat16"),
    ],
)
def test_a_changed_recipe_is_refused_with_the_difference(finished: Path, changes: dict[str, Any], message: str) -> None:
    before = traces(finished)
    with pytest.raises(SpecError) as caught:
        run_training(tiny(finished, **changes))
    assert str(caught.value).startswith(f"{finished} was started with another recipe, corpus or plugin: ")
    assert message in str(caught.value)
    assert str(caught.value).endswith(
        "Undo the change, choose another --out, continue nevertheless with --anyway, or start over with --fresh"
    )
    assert traces(finished) == before


def test_another_number_of_threads_on_the_machine_is_refused(tmp_path: Path) -> None:
    order = stopped(tiny(tmp_path, train__threads=None))
    torch.set_num_threads(2)
    with pytest.raises(SpecError, match=r"plugin: threads: 1 -> 2\. Undo"):
        run_training(order)
    torch.set_num_threads(1)
    run_training(order)


def test_another_torch_is_refused(tmp_path: Path) -> None:
    order = stopped(tiny(tmp_path))
    save_facts(tmp_path, torch="1.0")
    with pytest.raises(SpecError, match=r"torch: 1\.0 -> "):
        run_training(order)


def test_a_changed_corpus_is_refused_but_a_moved_one_is_not(tmp_path: Path, corpus: Path) -> None:
    order = stopped(on_files(tmp_path / "run", corpus))
    corpus.write_text("".join(ROWS[1:]))
    with pytest.raises(
        SpecError, match=r"another recipe, corpus or plugin: the corpus is not the one this run started with\. "
    ):
        run_training(order)
    corpus.write_text("".join(ROWS))
    run_training(order)


def test_fresh_starts_over(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    stopped(tiny(folder, train__seed=5, train__average={"which": "last", "count": 2}, train__validate_every=1))
    (folder / "mine.txt").write_text("kept")
    (folder / ".best.previous").mkdir()
    run_training(dataclasses.replace(tiny(folder), fresh=True))
    assert traces(folder) == traces(finished)
    assert {p.name for p in folder.iterdir()} - {p.name for p in finished.iterdir()} == {"mine.txt"}


@pytest.mark.parametrize("written", [(), ("run.json", "recipe.yaml"), ("run.json", "recipe.yaml", "log.jsonl")])
@pytest.mark.parametrize("name", ["final", "best"])
def test_a_killed_fresh_names_the_model_that_is_still_there(
    finished: Path, tmp_path: Path, name: str, written: tuple[str, ...]
) -> None:
    """Ctrl-C moves the old run back; a kill cannot, wherever it struck before the new run began."""
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    if name == "best":
        shutil.rmtree(folder / "final")
    move_aside(folder)
    for file in written:
        shutil.copy(finished / file, folder / file)
    with pytest.raises(CheckpointError) as caught:
        regard.load(folder)
    assert str(caught.value) == (
        f"{folder} has no model: train --fresh moved the one before to {folder / '.before' / name} and was stopped (or is "
        "preparing a new run). Name that folder to use it; train without --fresh moves it back"
    )
    regard.load(folder / ".before" / name)
    run_training(tiny(folder))
    assert not (folder / ".before").exists()
    regard.load(folder)


def test_fresh_with_a_wrong_recipe_deletes_nothing(tmp_path: Path) -> None:
    order = stopped(tiny(tmp_path))
    wrong = tiny(tmp_path, data__metrics=["exakt"])
    with pytest.raises(SpecError, match="no metric 'exakt'; did you mean 'exact'"):
        run_training(dataclasses.replace(wrong, fresh=True))
    assert Checkpoints(tmp_path / "checkpoints").steps() == [5]
    run_training(order)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != "run.lock"
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model__heads": 3}, "heads"),
        ({"train__schedule__warmup": 50}, "warms up for 50 steps, but there are only 12"),
    ],
)
def test_fresh_with_what_cannot_begin_changes_nothing(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    order = stopped(tiny(tmp_path))
    before = contents(tmp_path)
    with pytest.raises(SpecError, match=message):
        run_training(dataclasses.replace(tiny(tmp_path, **changes), fresh=True))
    assert contents(tmp_path) == before
    run_training(order)


def test_a_schedule_that_cannot_begin_is_refused_before_a_corpus_is_tokenized(tmp_path: Path) -> None:
    with (
        patch("regard.training.prepare.TrainerBuilder.prepare_task", side_effect=AssertionError("tokenized first")),
        pytest.raises(SpecError, match="warms up for 50 steps, but there are only 12"),
    ):
        run_training(tiny(tmp_path, train__schedule__warmup=50))


def test_a_run_that_saved_nothing_begins_anew_with_another_recipe(tmp_path: Path) -> None:
    """A mistake in a recipe that shows only when training starts can be mended without --fresh."""
    with pytest.raises(SpecError, match="schedule 'cosine' warms up for 50 steps, but there are only 12"):
        run_training(tiny(tmp_path, train__schedule__warmup=50))
    assert not (tmp_path / "run.json").exists()
    run_training(tiny(tmp_path))
    assert parse_yaml((tmp_path / "recipe.yaml").read_text(), "x")["train"]["schedule"]["warmup"] == 3


def test_data_that_is_refused_leaves_no_folder(tmp_path: Path, corpus: Path) -> None:
    """Neither before the run is opened nor after; nor the folders around it."""
    (tmp_path / "bad.tsv").write_text("a\tb\nonly one\n")
    (tmp_path / "short.txt").write_text("ab")
    out = tmp_path / "runs" / "deep" / "x"
    before = contents(tmp_path)
    for request, message in (
        (on_files(out, tmp_path / "bad.tsv"), "line 2: 1 columns"),
        (on_files(out, corpus, data__max_length=1), "raise data.max_length"),
        (
            tiny(out, {"task": "lm", "data": {"train": [str(tmp_path / "short.txt")]}}, model__family="gpt"),
            "two tokens",
        ),
    ):
        with pytest.raises(DataError, match=message):
            run_training(request)
        assert contents(tmp_path) == before and not (tmp_path / "runs").exists()


@pytest.mark.parametrize("left", [b"", b'{"fingerprint": "0', None])
def test_killed_while_the_folder_was_encode_prompts(tmp_path: Path, left: bytes | None) -> None:
    """Facts come first, the recipe second; whatever is there of them, nothing else is."""
    if left is None:
        (tmp_path / ".run.json.partial").write_bytes(b"{")
    else:
        (tmp_path / "run.json").write_bytes(left)
    run_training(tiny(tmp_path, train__steps=4))
    assert (tmp_path / "final").exists()
    assert not list(tmp_path.rglob(".*"))


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("name", ["recipe.yaml", "log.jsonl", "report.html", "run.json"])
def test_a_file_of_the_users_own_is_not_written_over(tmp_path: Path, name: str, fresh: bool) -> None:
    mine = (
        {name: "{}", "final/thesis.txt": "mine", "tensorboard/mine": "mine"} if name == "run.json" else {name: "mine"}
    )
    for path, text in mine.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    with pytest.raises(
        SpecError, match=f"{name} was not written by regard train and would be overwritten; choose another"
    ):
        run_training(dataclasses.replace(tiny(tmp_path), fresh=fresh))
    assert {path: (tmp_path / path).read_text() for path in mine} == mine


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("name", ["best/mine.txt", "checkpoints/step-00000001/mine.txt"])
def test_a_folder_of_the_users_own_is_left_alone(tmp_path: Path, name: str, fresh: bool) -> None:
    """A name that is also one of ours proves nothing."""
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(SpecError, match=r"holds models or checkpoints, but no run\.json of a run; choose another"):
        run_training(dataclasses.replace(tiny(tmp_path), fresh=fresh))
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize("name", ["best", "final", "vocabulary", ".best.previous"])
def test_what_the_user_put_into_a_run_is_not_deleted(tmp_path: Path, name: str) -> None:
    order = stopped(tiny(tmp_path))
    (tmp_path / name).mkdir(exist_ok=True)
    (tmp_path / name / "mine.txt").write_text("mine")
    with pytest.raises(SpecError, match=f"{name} contains mine.txt, which Regard did not write; choose another --out"):
        run_training(dataclasses.replace(order, fresh=True))
    assert (tmp_path / name / "mine.txt").exists() and Checkpoints(tmp_path / "checkpoints").steps() == [5]
    (tmp_path / name / "mine.txt").unlink()
    run_training(dataclasses.replace(order, fresh=True))


def test_a_damaged_manifest_does_not_keep_one_from_starting_over(tmp_path: Path) -> None:
    order = stopped(tiny(tmp_path))
    (tmp_path / "best" / "manifest.json").write_text("?")
    run_training(dataclasses.replace(order, fresh=True))
    assert json.loads((tmp_path / "best" / "manifest.json").read_text())["files"]


@pytest.mark.parametrize("name", ["run.json", "recipe.yaml"])
def test_without_a_copy_a_damaged_description_is_told(tmp_path: Path, name: str) -> None:
    """As in a run whose checkpoints are gone: it can be started over."""
    order = tiny(tmp_path)
    run_training(order)
    shutil.rmtree(tmp_path / "checkpoints")
    (tmp_path / name).write_text("{")
    with pytest.raises(
        CheckpointError, match=rf"{name} is damaged: .* no checkpoint has a copy of it; start over with"
    ):
        run_training(order)
    run_training(dataclasses.replace(order, fresh=True))


@pytest.mark.parametrize("left", ["", "{", '{"fingerprint'])
def test_a_damaged_file_of_facts_is_no_proof_of_a_run(tmp_path: Path, left: str) -> None:
    (tmp_path / "run.json").write_text(left)
    (tmp_path / "final").mkdir()
    (tmp_path / "final" / "thesis.txt").write_text("mine")
    for fresh in (False, True):
        with pytest.raises(CheckpointError, match=r"run\.json is damaged: it is not JSON .*; choose another --out"):
            run_training(dataclasses.replace(tiny(tmp_path), fresh=fresh))
    assert (tmp_path / "final" / "thesis.txt").read_text() == "mine"


def test_a_second_trainer_is_refused(tmp_path: Path) -> None:
    order = stopped(tiny(tmp_path))
    with RunLock(tmp_path), pytest.raises(RegardError, match=r"is being written by process .*; wait until it ends"):
        run_training(order)
    with RunLock(tmp_path), pytest.raises(RegardError, match="is being written by"):
        run_training(dataclasses.replace(order, fresh=True))
    assert Checkpoints(tmp_path / "checkpoints").steps() == [5]
    run_training(order)


def test_a_file_where_the_run_should_be(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(CheckpointError, match="there is a file where a folder should be"):
        run_training(tiny(tmp_path / "x"))


def test_recipes_alike_in_all_but_their_writing_agree(tmp_path: Path) -> None:
    """Characters that YAML changes on the way are no difference."""
    facts: dict[str, Any] = {"fingerprint": "0", **dict.fromkeys(FIXED)}
    recipe = Recipe.parse({"task": "translate", "train": {"steps": 1}, "about": "a\x85b\u2028c", "data": {"x": "1e3"}})
    open_run(tmp_path, recipe, facts, fresh=False)
    (tmp_path / "best").mkdir()
    open_run(tmp_path, recipe, facts, fresh=False)
    with pytest.raises(SpecError, match=r"data\.x: '1e3' -> 1000\.0"):
        open_run(tmp_path, dataclasses.replace(recipe, data={"x": 1000.0}), facts, fresh=False)
