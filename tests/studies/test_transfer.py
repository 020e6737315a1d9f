"""Modifications on several tasks: refused ones are shown, and there is a verdict for each task and over all."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.errors import SpecError
from regard.studies.compare import Comparer
from regard.studies.grid import Grid
from regard.studies.methods import NamedRecipe, Terms
from regard.studies.preparation import Preparation, cost_of, model_of
from regard.studies.study_options import StudyOptions
from regard.studies.transfer import MODIFICATIONS, TaskData, TransferResult, parse_task
from regard.studies.transfer import run as transfer
from regard.training.request import TrainRequest
from tests.training.small import COPY, TINY

SMALL = {**COPY, **TINY, "model.width": 32, "model.heads": 4, "train.steps": 4, "train.log_every": 2}


def test_every_modification_changes_the_recipe_and_can_be_built() -> None:
    preparation, seen = Preparation(), set()
    plain, data = preparation.complete(TrainRequest("copy", set=SMALL))
    for name, changes in MODIFICATIONS.items():
        made = changes(model_of(plain, data))
        recipe, data = preparation.complete(TrainRequest("copy", set={**SMALL, **made}))
        cost_of(model_of(recipe, data), 4)
        seen.add(recipe.json())
        assert recipe != plain, name
    assert len(seen) == len(MODIFICATIONS)


def test_from_end_to_end(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("the cat sat on the mat and looked at the dog. " * 60)
    small = {key: value for key, value in SMALL.items() if not key.startswith("data.")}
    found = transfer(
        Grid(tmp_path),
        (),
        StudyOptions(set=small, seeds=2),
        tasks=[f"lm=gpt,{tmp_path / 'book.txt'}"],
        only=["Muon", "rotary positions"],
    )
    assert list(found.compared) == ["lm"]
    assert found.words("Muon") == {"lm": "preliminary"}
    assert found.overall("Muon") == "preliminary"
    assert found.plain()["overall"] == {"rotary positions": "preliminary", "Muon": "preliminary"}
    assert "| Muon " in found.render()
    assert "Which modifications transfer" in found.page()


def test_what_a_part_cannot_do_is_refused_and_the_rest_goes_on(tmp_path: Path) -> None:
    causal = {**SMALL, "model.decoder.block.mix": {"kind": "linformer"}}
    entries = [NamedRecipe("plain", "copy", SMALL), NamedRecipe("linformer", "copy", causal)]
    kept, refused = Comparer(Grid(tmp_path), Terms(2)).split_refused(entries)
    assert [entry.name for entry in kept] == ["plain"]
    assert "causal" in refused["linformer"]
    found = TransferResult({}, {"copy": refused}, ["linformer"])
    assert "copy: linformer is refused: " in found.render()


def test_what_a_command_line_may_ask(tmp_path: Path) -> None:
    assert parse_task("t=translate,a.en,a.de") == TaskData("t", "translate", ("a.en", "a.de"))
    with pytest.raises(SpecError, match="the study of transfer names its recipes with --task NAME=RECIPE"):
        transfer(Grid(tmp_path), ["copy"], StudyOptions())
    with pytest.raises(SpecError, match="--task takes NAME=RECIPE,FILE"):
        parse_task("translate")
    with pytest.raises(
        SpecError, match=r"this study would take about .* lower --seeds or train.steps, or leave out a --task"
    ):
        transfer(
            Grid(tmp_path),
            (),
            StudyOptions(set=SMALL, seeds=2, minutes=1e-6),
            tasks=["a=copy", "b=copy"],
            only=["Muon"],
        )
    with pytest.raises(SpecError, match="no modification 'Moun'; there is RMSNorm"):
        transfer(Grid(tmp_path), (), StudyOptions(), only=["Moun"])
