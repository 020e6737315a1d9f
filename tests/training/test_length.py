"""How long a run is: what the user sets wins, what is printed happens, and a run can be made longer or shorter."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from regard.errors import SpecError
from regard.recipes.merge import parse_yaml, read_recipe
from regard.training.request import TrainRequest, build_recipe
from regard.training.train import run_training
from tests.training.small import TINY, events, tiny

FREE = {name: value for name, value in TINY.items() if name not in ("train.steps", "train.schedule")}
"""Small, with neither length nor schedule."""


def length(recipe: dict[str, Any], **changes: Any) -> tuple[int | None, int | None]:
    """Steps and epochs of the recipe that a request amounts to."""
    settings = {path.replace("__", "."): value for path, value in changes.items()}
    train = build_recipe(TrainRequest({"task": "translate", **recipe}, set=settings), None)["train"]
    return train.get("steps"), train.get("epochs")


def test_setting_steps_replaces_the_epochs_of_a_recipe_and_the_reverse() -> None:
    assert length({"train": {"epochs": 3}}, train__steps=60) == (60, None)
    assert length({"train": {"epochs": 3}}, train__steps="60") == (60, None)
    assert length({"train": {"steps": 60}}, train__epochs=3) == (None, 3)
    assert length({"train": {"epochs": 3}}, train={"steps": 60}) == (60, None)
    assert length({"train": {"epochs": 3, "steps": 5}}, train__steps=60) == (60, None)


def test_both_stay_where_both_are_set_or_neither() -> None:
    assert length({"train": {"epochs": 3}}, train__steps=60, train__epochs=9) == (60, 9)
    assert length({"train": {"epochs": 3, "steps": 5}}) == (5, 3)
    assert length({"train": {"epochs": 3, "steps": 5}}, train__seed=2) == (5, 3)
    assert length({"train": {"epochs": 3, "steps": 5}}, train__steps=None) == (None, 3)


def test_steps_that_are_set_are_taken(tmp_path: Path) -> None:
    recipe = read_recipe("copy")
    recipe["train"] = {"epochs": 1, **{k: v for k, v in recipe["train"].items() if k != "steps"}}
    run_training(tiny(tmp_path, recipe, data__generate__count=60, train__steps=40))
    assert events(tmp_path, "done")[0]["step"] == 40


def translating(out: Path, corpus: Path, **changes: Any) -> TrainRequest:
    """A request whose length and schedule are left to `auto` unless they are set."""
    settings = FREE | {"data.tokenizer": "chars", "data.metrics": ["exact"], "train.validate_every": 100}
    settings |= {path.replace("__", "."): value for path, value in changes.items()}
    return TrainRequest("translate", (str(corpus),), set=settings, out=str(out))


@pytest.mark.parametrize("steps", [5, 90])
def test_what_is_printed_is_what_happens(
    tmp_path: Path, corpus: Path, steps: int, capsys: pytest.CaptureFixture[str]
) -> None:
    run_training(translating(tmp_path / "run", corpus, train__steps=steps))
    said = capsys.readouterr().err
    assert f"chosen: {steps} steps" in said and "60 passes" not in said
    assert f"training: {steps} steps, " in said
    assert events(tmp_path / "run", "done")[0]["step"] == steps


def test_a_finished_run_is_made_longer_without_being_asked_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_training(tiny(tmp_path))
    run_training(dataclasses.replace(tiny(tmp_path, train__steps=20), quiet=False))
    assert [event["step"] for event in events(tmp_path, "done")] == [12, 20]
    said = capsys.readouterr().err
    assert "changed since the run was started: train.steps: 12 -> 20" in said
    assert "the schedule is now that of a run of 20 steps; the learning rate of step 13 is 0.00" in said
    assert parse_yaml((tmp_path / "recipe.yaml").read_text(), "x")["train"]["steps"] == 20


def test_more_epochs(tmp_path: Path) -> None:
    run_training(tiny(tmp_path, train__steps=None, train__epochs=1))
    first = events(tmp_path, "done")[0]["step"]
    run_training(tiny(tmp_path, train__steps=None, train__epochs=2))
    assert [event["step"] for event in events(tmp_path, "done")] == [first, 2 * first]


def test_what_auto_chose_stays_when_a_run_gets_longer(
    tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    run_training(translating(run, corpus, train__steps=20))
    before = parse_yaml((run / "recipe.yaml").read_text(), "x")["train"]
    capsys.readouterr()
    run_training(translating(run, corpus, train__steps=40))
    assert "chosen" not in capsys.readouterr().err
    assert parse_yaml((run / "recipe.yaml").read_text(), "x")["train"] == before | {"steps": 40}
    assert [event["step"] for event in events(run, "done")] == [20, 40]
    with pytest.raises(SpecError, match=r"model\.dropout: 0.4 -> 0.33"):
        run_training(translating(run, corpus, train__steps=40, model__dropout=0.33))


def test_a_run_that_is_beyond_its_new_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_training(tiny(tmp_path))
    run_training(dataclasses.replace(tiny(tmp_path, train__steps=6), quiet=False))
    said = capsys.readouterr().err
    assert "this run is already at step 12, beyond the 6 asked for: there is nothing left to train" in said
    assert {event["step"] for event in events(tmp_path, "done")} == {12}
