"""Continuing a run after its corpus, recipe, threads or torch changed: refused with the difference, allowed with --anyway."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.errors import CheckpointError, SpecError
from regard.files.folder import read_folder
from regard.recipes.merge import parse_yaml
from regard.training import train
from regard.training.request import TrainRequest
from regard.training.run.checkpoint import Checkpoints
from regard.training.run.run_folder import BOUND, save_facts
from regard.training.train import run_training
from tests.faulty import PowerCut
from tests.training.small import ROWS, events, on_files, stopped, tiny


def anyway(request: TrainRequest) -> TrainRequest:
    return dataclasses.replace(request, anyway=True)


def change(what: str, request: TrainRequest, corpus: Path) -> tuple[TrainRequest, str]:
    """The request after something changed, and how the difference reads."""
    if what == "corpus":
        corpus.write_text("".join(ROWS[1:]))
        return request, "the corpus is not the one this run started with"
    if what == "recipe":
        return dataclasses.replace(request, set={**request.set, "model.dropout": 0.25}), "model.dropout: 0.4 -> 0.25"
    if what == "threads":
        save_facts(request.folder, threads=7)
        return request, "threads: 7 -> 1"
    save_facts(request.folder, torch="1.0")
    return request, f"torch: 1.0 -> {torch.__version__}"


@pytest.mark.parametrize("what", ["corpus", "recipe", "threads", "torch"])
def test_refused_with_the_difference_unless_told_otherwise(what: str, tmp_path: Path, corpus: Path) -> None:
    request, difference = change(what, stopped(on_files(tmp_path / "run", corpus, decode__beam=1)), corpus)
    with pytest.raises(SpecError) as caught:
        run_training(request)
    assert f"was started with another recipe, corpus or plugin: {difference}. Undo the change" in str(caught.value)
    assert "continue nevertheless with --anyway" in str(caught.value)
    assert Checkpoints(tmp_path / "run" / "checkpoints").steps() == [5]
    run_training(anyway(request))
    (event,) = events(tmp_path / "run", "changed")
    assert event == {"event": "changed", "step": 5, "changes": [difference]}
    assert [e["step"] for e in events(tmp_path / "run", "train")] == list(range(1, 13)), "it went on from step 5"
    run_training(request)  # from now on, this is the run


def test_what_changed_is_said_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stopped(tiny(tmp_path))
    run_training(dataclasses.replace(anyway(tiny(tmp_path, train__label_smoothing=0.3)), quiet=False))
    assert "changed since the run was started: train.label_smoothing: 0.0 -> 0.3" in capsys.readouterr().err
    assert parse_yaml((tmp_path / "recipe.yaml").read_text(), "x")["train"]["label_smoothing"] == 0.3
    assert "changed" in (tmp_path / "report.html").read_text()


def test_a_finished_run_is_given_more_steps(tmp_path: Path) -> None:
    run_training(tiny(tmp_path))
    before = read_folder(tmp_path / "final")["model.safetensors"]
    run_training(anyway(tiny(tmp_path, train__steps=40)))
    assert [event["step"] for event in events(tmp_path, "done")] == [12, 40]
    assert read_folder(tmp_path / "final")["model.safetensors"] != before
    assert events(tmp_path, "changed")[0]["changes"] == ["train.steps: 12 -> 40"]


class Killed(BaseException):
    """What no code catches."""


def killed(request: TrainRequest, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run, ended where it calls this."""

    def end(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(where, end)
        run_training(request)


SAVE, AMEND, STEP = (
    "regard.training.trainer.Trainer.save",
    "regard.training.train.update_run",
    "regard.training.trainer.Trainer._update",
)


@pytest.mark.parametrize("where", [SAVE, AMEND, STEP], ids=["saved", "written down", "stepped"])
def test_killed_before_a_change_was(tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it meant is not lost: the steps that were added are taken, and before it is written down, the old run is whole."""
    run_training(tiny(tmp_path, train__average={"which": "last", "count": 2}))
    more = tiny(tmp_path, train__steps=40, train__ema=0.5)
    killed(anyway(more), where, monkeypatch)
    if where == STEP:
        run_training(more)  # from now on, this is the run
    else:
        with pytest.raises(SpecError, match=r"train\.ema: None -> 0\.5"):
            run_training(more)
        run_training(tiny(tmp_path, train__average={"which": "last", "count": 2}))
        assert {event["step"] for event in events(tmp_path, "done")} == {12}
        run_training(anyway(more))
    assert events(tmp_path, "done")[-1]["step"] == 40
    assert [e["step"] for e in events(tmp_path, "train")] == list(range(1, 41))


def test_a_run_that_had_saved_nothing_begins_with_the_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(tiny(tmp_path), SAVE, monkeypatch)
    assert (tmp_path / "best").exists(), "it had judged"
    run_training(anyway(tiny(tmp_path, train__steps=15)))
    assert [e["step"] for e in events(tmp_path, "train")] == list(range(1, 16))
    assert not events(tmp_path, "changed")
    run_training(tiny(tmp_path, train__steps=15))


def test_a_change_that_cannot_be_is_not_kept(tmp_path: Path) -> None:
    request = stopped(tiny(tmp_path))
    with pytest.raises(SpecError, match="warms up for 500 steps, but there are only 12"):
        run_training(anyway(tiny(tmp_path, train__schedule={"kind": "cosine", "lr": 3e-3, "warmup": 500})))
    assert not events(tmp_path, "changed")
    run_training(request)


def test_other_data_means_another_best(tmp_path: Path) -> None:
    """The best score so far is of data that nobody is judged by any more."""
    run_training(tiny(tmp_path, train__validate_every=2))
    run_training(anyway(tiny(tmp_path, train__steps=14, train__validate_every=2, data__metrics=["wer", "exact"])))
    loaded = Checkpoints(tmp_path / "checkpoints").load_newest()
    assert loaded is not None
    last = events(tmp_path, "valid")[-1]
    assert (loaded.facts["best_step"], loaded.facts["best"]) == (14, last["scores"]["wer"])


@pytest.mark.parametrize(
    ("setting", "anew"), [({"decode__repetition_guard": False}, True), ({"decode__beam": 2}, False)], ids=str
)
def test_other_outputs_mean_another_best(tmp_path: Path, setting: dict[str, Any], anew: bool) -> None:
    """While a run trains it is judged greedily: how wide its beam is changes nothing."""
    stopped(tiny(tmp_path, train__validate_every=4), 5)
    change = anyway(tiny(tmp_path, train__validate_every=4, **setting))
    with pytest.MonkeyPatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr("regard.training.trainer.Trainer._update", lambda *_: 1 / 0)
        run_training(change)
    loaded = Checkpoints(tmp_path / "checkpoints").load_newest()
    assert loaded is not None and (loaded.facts["best"] is None) == anew


@pytest.mark.parametrize("ema", [(None, 0.5), (0.5, None)])
def test_a_moving_average_may_come_or_go(tmp_path: Path, ema: tuple[Any, Any]) -> None:
    stopped(tiny(tmp_path, train__ema=ema[0]))
    run_training(anyway(tiny(tmp_path, train__ema=ema[1])))
    loaded = Checkpoints(tmp_path / "checkpoints").load_newest()
    assert loaded is not None and ("average" in loaded.groups) == (ema[1] is not None)


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"data__tokenizer": "words"}, "data.tokenizer.kind: 'chars' -> 'words'"),
        ({"train__optimizer": {"kind": "muon"}}, "train.optimizer.kind: 'adamw' -> 'muon'"),
    ],
)
def test_what_no_checkpoint_can_follow(tmp_path: Path, changes: dict[str, Any], difference: str) -> None:
    stopped(tiny(tmp_path))
    with pytest.raises(SpecError) as caught:
        run_training(anyway(tiny(tmp_path, **changes)))
    assert "was started with another recipe: " in str(caught.value) and difference in str(caught.value)
    assert "Its checkpoints cannot be used with this; undo the change, choose another --out" in str(caught.value)
    assert any(difference.startswith(name) for name in BOUND)


def test_another_shape_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    request = stopped(tiny(tmp_path))
    with pytest.raises(CheckpointError, match="is of another model: "):
        run_training(anyway(tiny(tmp_path, model__hidden=64)))
    run_training(request)


def test_without_a_change_it_says_nothing(tmp_path: Path) -> None:
    run_training(anyway(stopped(tiny(tmp_path))))
    assert not events(tmp_path, "changed")


def test_a_change_is_logged_once_if_a_crash_came_before_the_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_training(tiny(tmp_path / "run", train__steps=4))
    longer = tiny(tmp_path / "run", train__steps=6)

    def crash(*_: object) -> None:
        raise PowerCut

    with monkeypatch.context() as patch, pytest.raises(PowerCut):
        patch.setattr(train, "update_run", crash)
        run_training(longer)
    run_training(longer)
    assert [event["changes"] for event in events(tmp_path / "run", "changed")] == [["train.steps: 4 -> 6"]]
