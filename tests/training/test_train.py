"""A run from the outside: what lies in its folder, what the same command does again, and which model it gives."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch

from regard.errors import CheckpointError, Interrupted, SpecError
from regard.files.folder import read_folder
from regard.serialization.model_folder import FINISHED, find_model
from regard.training.request import TrainRequest
from regard.training.run.checkpoint import Checkpoints
from regard.training.run.log import read_log
from regard.training.step.validate import Validator
from regard.training.train import run_training
from regard.training.trainer import Trainer
from tests.training.small import hard, interrupted, stopped, stopping_after, tiny, traces

pytestmark = pytest.mark.numeric

# What lies in a run folder.


def test_a_run_folder(finished: Path) -> None:
    assert {p.name for p in finished.iterdir()} == {
        "best", "checkpoints", "final", "log.jsonl", "recipe.yaml", "report.html", "run.json", "run.lock", "tokens",
        "vocabulary",
    }  # fmt: skip
    assert {p.name for p in (finished / "final").iterdir()} == {
        "README.md", "config.json", "engine.json", "manifest.json", "model.safetensors", "tokenizer.json",
    }  # fmt: skip
    assert [p.name for p in sorted((finished / "checkpoints").iterdir())] == ["step-00000010", "step-00000012"]
    log = read_log(finished / "log.jsonl")
    assert [e["event"] for e in log if e["event"] != "train"] == ["start", "valid", "valid", "valid", "done"]
    assert log[0]["total"] == 12
    assert log[0]["fingerprint"] == json.loads((finished / "run.json").read_text())["fingerprint"]
    assert len(log[-1]["examples"]) == 6
    assert set(log[-1]["examples"][0]) == {"source", "reference", "output"}
    assert "Finished" in (finished / "report.html").read_text()


def test_the_recipe_that_is_kept_makes_the_same_run_again(finished: Path, tmp_path: Path) -> None:
    run_training(TrainRequest(str(finished / "recipe.yaml"), out=str(tmp_path / "again"), quiet=True))
    assert traces(tmp_path / "again") == traces(finished)


def test_the_card_tells_where_the_model_comes_from(finished: Path) -> None:
    text = (finished / "final" / "README.md").read_text()
    assert "# copy: a translate model" in text
    assert "| exact | " in text
    assert f"| torch | {torch.__version__} |" in text
    assert "| command | regard train copy --set data.generate.count=60 " in text
    assert "| fingerprint | " in text


def test_the_card_names_the_step_of_its_weights(tmp_path: Path) -> None:
    def step(folder: Path) -> str:
        (line,) = (line for line in (folder / "README.md").read_text().splitlines() if line.startswith("| step |"))
        return line

    often = {"train__validate_every": 1, "train__schedule__lr": 0.3, "train__steps": 6}
    run_training(tiny(tmp_path / "best", **often))
    loaded = Checkpoints(tmp_path / "best" / "checkpoints").load_newest()
    assert loaded is not None and loaded.facts["best_step"] < 6, "the last step was not the best"
    assert (
        step(tmp_path / "best" / "final")
        == step(tmp_path / "best" / "best")
        == f"| step | {loaded.facts['best_step']} |"
    )
    run_training(tiny(tmp_path / "mean", train__average={"which": "last", "count": 2}, **often))
    assert step(tmp_path / "mean" / "final") == "| step | the mean of 5, 6 |"


def test_it_writes_to_stderr_only_and_nothing_when_quiet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    order = tiny(tmp_path, train__steps=4)
    run_training(order)
    assert capsys.readouterr() == ("", "")
    run_training(dataclasses.replace(order, quiet=False, fresh=True))
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[0].startswith("model: 5,856 parameters, float32, on 1 thread of ")
    assert lines[1].startswith("training: 4 steps, 60 examples; run folder ")
    assert lines[2].startswith("step 4/4  loss ")
    assert lines[-4].startswith("done: loss ") and lines[-1].startswith("see it:    open ")


def test_pairs_too_long_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    order = tiny(tmp_path, train__steps=4, data__max_length=5)
    run_training(dataclasses.replace(order, quiet=False))
    err = capsys.readouterr().err
    assert " too long and left out); run folder" in err
    examples = int(err.split("4 steps, ")[1].split()[0])
    left_out = int(err.split("examples (")[1].split()[0])
    assert left_out > 0
    assert examples + left_out == 60


def test_global_settings_are_left_as_they_were(tmp_path: Path) -> None:
    torch.set_num_threads(2)
    before = torch.get_rng_state()
    run_training(tiny(tmp_path, train__steps=4, model__dropout=0.2))
    assert torch.get_num_threads() == 2
    assert torch.equal(torch.get_rng_state(), before)


# The same command again.


def test_a_finished_run_says_so_and_trains_no_more(
    finished: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = traces(finished)
    monkeypatch.setattr(Trainer, "_update", lambda *_: pytest.fail("it trains"))
    monkeypatch.setattr(Validator, "scores", lambda *_: pytest.fail("it validates"))
    path = run_training(dataclasses.replace(tiny(finished), quiet=False))
    assert path == finished / "final"
    assert "this run is finished at step 12 of 12" in capsys.readouterr().err
    assert traces(finished) == before


def test_the_message_of_a_stop_is_the_command_that_goes_on(tmp_path: Path) -> None:
    order = dataclasses.replace(tiny(tmp_path / "my run", train__steps=6), device="cpu", tensorboard=True)
    with stopping_after(2), pytest.raises(Interrupted) as caught:
        run_training(order)
    said = str(caught.value)
    assert said.startswith(
        "stopped at step 2 of 6, and saved; to continue: regard train copy --set data.generate.count=60 "
    )
    assert said.endswith(f"--out '{tmp_path / 'my run'}' --device cpu --tensorboard")
    assert caught.value.exit_code == 130


def test_stopping_at_the_last_step_leaves_the_rest_for_the_next_time(tmp_path: Path) -> None:
    order = stopped(tiny(tmp_path), 12)
    assert not (tmp_path / "final").exists()
    run_training(order)
    assert (tmp_path / "final").exists()


def test_a_command_says_all_that_was_asked() -> None:
    order = TrainRequest(
        "my recipe.yaml", ("a.en", "a.de"), ("v.en", "v.de"), {"train.ema": None, "model.norm": "pre", "data.x": [1]},
        start="other", out="runs/x",
    )  # fmt: skip
    assert order.command == (
        "regard train 'my recipe.yaml' a.en a.de --valid v.en --valid v.de --set train.ema=null "
        "--set model.norm=pre --set 'data.x=[1]' --from other --out runs/x"
    )
    assert order.folder == Path("runs/x")
    assert dataclasses.replace(order, out=None).folder == Path("runs/my recipe")


@pytest.mark.parametrize("lost", ["final", "done", "final half written"])
def test_a_run_that_died_while_finishing_finishes(finished: Path, tmp_path: Path, lost: str) -> None:
    """Whatever of the end is missing is done again, and nothing twice."""
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    if lost != "done":
        shutil.rmtree(folder / "final")
    if lost == "final half written":
        (folder / ".final.partial").mkdir()
        (folder / ".final.partial" / "config.json").write_text("{")
    log = folder / "log.jsonl"
    log.write_text("".join(line + "\n" for line in log.read_text().splitlines() if '"done"' not in line))
    run_training(tiny(folder))
    assert traces(folder) == traces(finished)
    assert not (folder / ".final.partial").exists()


@pytest.mark.parametrize("lost", [["checkpoints"], ["checkpoints", "best"]], ids=["checkpoints", "best too"])
def test_a_finished_run_without_checkpoints_is_finished(
    finished: Path, tmp_path: Path, lost: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    (folder / "final").rename(folder / ".final.previous")
    for name in lost:
        shutil.rmtree(folder / name)
    assert run_training(dataclasses.replace(tiny(folder), quiet=False)) == folder / "final"
    assert "this run is finished; its checkpoints are gone, so no step can be added" in capsys.readouterr().err
    assert read_folder(folder / "final").files == read_folder(finished / "final").files
    assert read_log(folder / "log.jsonl") == read_log(finished / "log.jsonl")
    with pytest.raises(
        CheckpointError, match="no checkpoint to continue from: start over with --fresh, or start a new run from"
    ):
        run_training(dataclasses.replace(tiny(folder, train__steps=20), anyway=True))


@pytest.mark.parametrize("spoiled", ["final/config.json", "log.jsonl"])
def test_a_model_without_checkpoints_is_not_written_over(finished: Path, tmp_path: Path, spoiled: str) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    shutil.rmtree(folder / "checkpoints")
    (folder / spoiled).write_text("?")
    with pytest.raises(
        CheckpointError, match="holds the model of a run, but no checkpoint to continue from: start over"
    ):
        run_training(tiny(folder))
    shutil.rmtree(folder / "final")
    with pytest.raises(CheckpointError, match="start over with --fresh"):
        run_training(tiny(folder))
    assert read_folder(folder / "best").files == read_folder(finished / "best").files
    run_training(dataclasses.replace(tiny(folder), fresh=True))
    assert traces(folder) == traces(finished)


def test_a_final_model_that_was_deleted_is_made_again(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    shutil.rmtree(folder / "final")
    run_training(tiny(folder))
    assert traces(folder)["models"] == traces(finished)["models"]


# Which model of a run.


def test_the_model_of_a_run_is_final_else_best(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    assert find_model(folder).path == folder / "final"
    assert find_model(folder / "best").path == folder / "best"
    shutil.rmtree(folder / "final")
    with pytest.raises(CheckpointError, match="is missing, though this run was finished"):
        find_model(folder)
    facts = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({name: value for name, value in facts.items() if name != FINISHED}))
    assert find_model(folder).path == folder / "best"
    (folder / "best").rename(folder / ".best.previous")
    assert find_model(folder).path == folder / "best", "killed in the middle of replacing it"
    shutil.rmtree(folder / ".best.previous")
    with pytest.raises(CheckpointError, match="is a run that has not validated yet; let it train longer"):
        find_model(folder)
    with pytest.raises(SpecError, match="there is no model folder"):
        find_model(tmp_path / "nowhere")


def test_averages_end_in_the_final_model(tmp_path: Path) -> None:
    run_training(tiny(tmp_path, train__average={"which": "last", "count": 3}, train__validate_every=2))
    snapshots = sorted((tmp_path / "snapshots").iterdir())[-3:]
    assert [p.name for p in snapshots] == ["step-00000008", "step-00000010", "step-00000012"]
    from regard.files.tensors import read_tensors

    parts = [read_tensors(p / "weights.safetensors") for p in snapshots]
    for name, tensor in read_folder(tmp_path / "final").tensors().items():
        wanted = torch.stack([part[name].double() for part in parts]).mean(0).float()
        torch.testing.assert_close(tensor, wanted, rtol=1e-6, atol=1e-8)


def test_tensorboard_is_written_where_the_run_is(tmp_path: Path) -> None:
    order = dataclasses.replace(tiny(tmp_path), tensorboard=True)
    stopped(order)
    run_training(order)
    assert list((tmp_path / "tensorboard").glob("events.out.tfevents.*"))


def test_the_hard_run_leaves_no_rest(tmp_path: Path) -> None:
    """Nothing half written, no snapshot that nobody speaks of."""
    interrupted(hard(tmp_path), 3, 9)
    assert list(tmp_path.rglob(".*")) == []
