"""`study compare`: from recipes to a verdict, fairly, once, and refused in one line where it cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from regard.errors import RegardError, SpecError
from regard.studies.compare import Comparer, CompareResult
from regard.studies.compare import run as compare
from regard.studies.grid import Grid
from regard.studies.methods import NamedRecipe, Terms, list_entries, parse_vary
from regard.studies.run_study import study
from regard.studies.study_options import StudyOptions
from regard.studies.train_cell import select_long
from regard.training.run.lock import RunLock
from tests.training.small import COPY, TINY

LESS = {**COPY, **TINY, "train.steps": 4, "train.validate_every": 2, "train.log_every": 2}


def tell(found: CompareResult) -> dict[str, Any]:
    """The results without the clock."""
    return {key: value for key, value in found.plain().items() if key != "timing"}


def test_from_recipe_to_verdict(tmp_path: Path) -> None:
    said: list[str] = []
    found = study(
        "compare",
        "copy",
        vary=["model.norm=pre,post"],
        set=LESS,
        seeds=2,
        out=tmp_path,
        processes=0,
        notify=said.append,
    )
    plain = json.loads((tmp_path / "compare.json").read_text())
    assert plain == found.plain()
    assert [each["name"] for each in plain["contenders"]] == ["pre", "post"]
    assert all(len(each["scores"]) == 2 for each in plain["contenders"])
    assert plain["verdicts"][0]["verdict"] == "preliminary"
    assert plain["metric"] == "exact"
    text = found.render()
    assert "| pre " in text
    assert "baseline" in text
    assert "matched: the same steps of the same batches" in text
    assert "a verdict needs 5 seeds" in text
    assert said[0].startswith("2 contenders, 4 cells: about ")
    page = (tmp_path / "report.html").read_text()
    assert "Learning curves" in page
    assert 'class="band"' in page
    assert (tmp_path / "curves.png").stat().st_size > 1000
    assert (tmp_path / "pareto.png").exists()
    again = compare(Grid(tmp_path), ["copy"], StudyOptions(set=LESS, seeds=2), vary=["model.norm=pre,post"])
    assert tell(again) == {key: value for key, value in found.plain().items() if key != "timing"}


def test_a_study_whose_runs_all_fail_says_why(tmp_path: Path) -> None:
    """No curves, no points in the figures, and no traceback."""
    bad = {**LESS, "train.schedule": {"kind": "cosine", "lr": 1e-3, "warmup": 9}}
    found = study("compare", "copy", vary=["model.norm=pre,post"], set=bad, seeds=2, out=tmp_path, processes=0)
    assert found.plain()["verdicts"][0]["verdict"] == "no result"  # type: ignore[index]
    assert "schedule 'cosine' warms up for 9 steps, but there are only 4" in found.render()
    assert (tmp_path / "report.html").exists()
    with pytest.raises(SpecError, match="pre: every tuning run failed: schedule 'cosine' warms up for 9 steps"):
        study("compare", "copy", vary=["model.norm=pre,post"], set=bad, seeds=2, tune="rate", out=tmp_path, processes=0)


def test_only_pairs_are_selected_by_length() -> None:
    with pytest.raises(SpecError, match=r"only pairs of texts \(task translate\) can be selected by their length"):
        select_long(["a text"], 3)


def test_more_seeds_are_a_further_look_and_run_only_what_is_new(tmp_path: Path) -> None:
    said: list[str] = []
    grid = Grid(tmp_path, say=said.append)
    compare(grid, ["copy"], StudyOptions(set=LESS, seeds=2), vary=["model.norm=pre,post"])
    found = compare(grid, ["copy"], StudyOptions(set=LESS, seeds=3), vary=["model.norm=pre,post"])
    assert "4 of 6 cells are finished already" in said
    assert list(found.looks) == [2, 3]
    assert found.verdicts[0].level == pytest.approx(0.0045)
    assert found.verdicts[0].found is not None


def test_contenders_are_matched_and_tuned(tmp_path: Path) -> None:
    found = compare(
        Grid(tmp_path),
        ["copy"],
        StudyOptions(set=LESS, seeds=2),
        vary=["model.depth=1,2"],
        match="parameters",
        tune="rate",
    )
    first, second = found.methods
    assert abs(second.parameters / first.parameters - 1) <= 0.01
    assert second.notes[0].startswith("width 16 → ")
    assert all("learning rate" in method.notes[-1] for method in found.methods)
    assert any(note.startswith("tuned: each contender tried 5 learning rates with seed 0") for note in found.notes)
    assert len(list((tmp_path / "cells").iterdir())) == 2 * 5 + 4


def test_time_is_measured_once(tmp_path: Path) -> None:
    comparer = Comparer(Grid(tmp_path), Terms(2, "time"))
    entries = [NamedRecipe("one", "copy", LESS), NamedRecipe("two", "copy", {**LESS, "model.depth": 2})]
    methods = [comparer.prepare(entries) for _ in range(2)]
    notes = [comparer._match(each) for each in methods]
    assert notes[0] == notes[1]
    assert methods[0][1].recipe == methods[1][1].recipe
    assert len(json.loads((tmp_path / "calibration.json").read_text())) == 2


@pytest.mark.parametrize(
    ("recipes", "how", "wanted"),
    [
        (["copy"], {}, "a comparison needs two recipes, or one with --vary PATH=VALUE,VALUE"),
        (["copy", "dates"], {"vary": ["a=1,2"]}, "--vary changes one recipe, got 2"),
        (["copy"], {"vary": ["model.norm=pre"]}, "--vary takes PATH=VALUE,VALUE with two values or more"),
        (["copy"], {"vary": ["data.generate.seed=1,2"]}, "1 and 2 have different data; give both the same with --data"),
        (
            ["copy", "gpt"],
            {"set": {}},
            "copy and gpt cannot be compared: the task of one is translate, of the other lm",
        ),
        (["copy"], {"vary": ["model.norm=pre,post"], "seeds": 1}, "at least 2 seeds, and 5 for a verdict; got 1"),
        (["copy"], {"vary": ["model.norm=pre,post"], "match": "flop"}, "no way to match 'flop'; did you mean 'flops'"),
        (["copy"], {"vary": ["model.norm=pre,post"], "tune": "width"}, "no setting to tune 'width'; available: rate"),
        (["copy"], {"vary": ["model.norm=pre,post"], "minutes": 1e-5}, "minutes are given: about 0 seeds fit; lower"),
        (
            ["copy"],
            {"vary": ["data.tokenizer.kind=chars,bytes"], "metric": "loss"},
            "the loss of models with different tokenizers cannot be compared; choose a metric of outputs",
        ),
        (["copy"], {"vary": ["model.norm=pre,post"], "metric": "blue"}, "no metric 'blue'; did you mean 'bleu'"),
        (["copy"], {"vary": ["train.batch_tokens=auto,64"]}, "cannot be 'auto' in a study"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, recipes: list[str], how: dict[str, Any], wanted: str) -> None:
    small: dict[str, Any] = {"set": LESS} if recipes == ["copy"] else {}
    with pytest.raises(SpecError) as caught:
        study("compare", *recipes, out=tmp_path / "out", processes=0, **{**small, **how})
    assert wanted in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_study_has_one_writer(tmp_path: Path) -> None:
    with RunLock(tmp_path / "out"), pytest.raises(RegardError, match="out is being written by process"):
        study("compare", "copy", vary=["model.norm=pre,post"], set=LESS, out=tmp_path / "out", processes=0)


@pytest.mark.parametrize("metric", ["bleu", "accuracy", "masked_accuracy"])
def test_a_metric_that_the_task_cannot_give_is_refused(tmp_path: Path, metric: str) -> None:
    """A language model has no outputs with references, and predicts no masks."""
    book = tmp_path / "book.txt"
    book.write_text("the cat sat on the mat. " * 40)
    small = {key: value for key, value in LESS.items() if not key.startswith("data.")} | {"data.context": 8}
    with pytest.raises(SpecError, match=f"this task gives nothing that {metric} could score; choose one of .*loss"):
        study(
            "compare", "gpt", vary=["model.norm=pre,post"], data=[str(book)], set=small, metric=metric,
            out=tmp_path / "out", processes=0,
        )  # fmt: skip


def test_what_varies() -> None:
    assert parse_vary(["train.optimizer={kind: adamw, betas: [0.9, 0.98]},muon"]) == [
        ("train.optimizer", ["{kind: adamw, betas: [0.9, 0.98]}", "muon"])
    ]
    both = list_entries(["copy"], ["model.norm=pre,post", "model.depth=1,2"], {})
    assert [entry.name for entry in both] == ["pre 1", "pre 2", "post 1", "post 2"]
    assert list_entries(["copy", "a/dates.yaml"], [], {})[1].name == "dates"
    with pytest.raises(SpecError, match="different names, got copy, copy"):
        list_entries(["copy", "copy"], [], {})
