"""Runs that start from another model, and go on with its weights and vocabulary."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
import torch

import regard
from regard.errors import CheckpointError, SpecError
from regard.files.folder import read_folder, write_folder
from regard.files.tensors import pack
from regard.training.request import TrainRequest
from regard.training.train import run_training
from tests.training.small import ROWS, events, on_files, stopped, tiny

pytestmark = pytest.mark.numeric


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A corpus, and a run on it."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "corpus.tsv").write_text("".join(ROWS))
    run_training(on_files(folder / "run", folder / "corpus.tsv", data__tokenizer={"kind": "bpe", "vocab": 40}))
    return folder / "corpus.tsv", folder / "run"


def test_from_a_model_goes_on_with_its_weights_and_its_vocabulary(trained: tuple[Path, Path], tmp_path: Path) -> None:
    """On another corpus, with another tokenizer and width in the recipe: the model keeps its own."""
    other = tmp_path / "other.tsv"
    other.write_text("".join(f"xyz{row}" for row in ROWS))
    changes = {"data__tokenizer": ..., "train__steps": 1, "train__schedule": {"kind": "constant", "lr": 1e-30}}
    order = on_files(tmp_path / "tuned", other, **changes)
    settings = {k: v for k, v in order.set.items() if v is not ... and not k.startswith("model.")}
    order = dataclasses.replace(order, start=str(trained[1]), set=settings)
    run_training(order)
    old, new = read_folder(trained[1] / "final"), read_folder(tmp_path / "tuned" / "final")
    assert old["tokenizer.json"] == new["tokenizer.json"]
    assert old.json("config.json")["model"] == new.json("config.json")["model"]
    assert old.json("config.json")["settings"]["tokenizer"] == new.json("config.json")["settings"]["tokenizer"]
    for name, tensor in old.tensors().items():
        assert torch.equal(tensor, new.tensors()[name])
    assert run_training(order) == tmp_path / "tuned" / "final", "the same command again"


def test_fine_tuning_learns_the_other_corpus(trained: tuple[Path, Path], tmp_path: Path) -> None:
    other = tmp_path / "other.tsv"
    other.write_text("aa1\tb\nbb2\tc\ncc3\td\ndd4\te\n" * 3)
    settings = {"train.steps": 60, "train.schedule": {"kind": "constant", "lr": 0.01}, "train.threads": 1}
    settings |= {"train.average": None, "train.validate_every": 20, "data.metrics": ["exact"], "train.log_every": 1}
    order = TrainRequest(
        "translate", (str(other),), (str(other),), settings, start=str(trained[1]), out=str(tmp_path / "tuned")
    )
    run_training(dataclasses.replace(order, quiet=True))
    losses = [event["loss"] for event in events(tmp_path / "tuned", "valid")]
    assert losses[-1] < 0.5 * losses[0]
    assert regard.load(trained[1]).task.files() == regard.load(tmp_path / "tuned").task.files()


def test_what_fits_is_taken_and_the_rest_is_listed(trained: tuple[Path, Path], tmp_path: Path) -> None:
    """A layer more in the encoder is new; a wider feed-forward layer begins anew, and the old one is left."""
    order = dataclasses.replace(on_files(tmp_path / "x", trained[0]), start=str(trained[1]))
    changes = {"model.encoder.depth": 2, "model.decoder.block.feed.width": 64}
    rate = {"train.steps": 1, "train.schedule": {"kind": "constant", "lr": 1e-30}}
    kept = {k: v for k, v in order.set.items() if not k.startswith("model.")}
    run_training(dataclasses.replace(order, set=kept | changes | rate))
    old, new = (read_folder(path / "final").tensors() for path in (trained[1], tmp_path / "x"))
    weights = events(tmp_path / "x", "start")[0]["weights"]
    wide = [f"decoder.blocks.0.feed.{name}" for name in ("up.weight", "up.bias", "down.weight")]
    assert sorted(weights["left"]) == sorted(wide)
    assert sorted(weights["new"]) == sorted([*wide, *(name for name in new if name.startswith("encoder.blocks.1."))])
    assert sorted(weights["taken"]) == sorted(set(old) - set(wide))
    assert all(torch.equal(old[name], new[name]) for name in weights["taken"])


def test_a_model_of_which_nothing_fits_is_refused(trained: tuple[Path, Path], tmp_path: Path) -> None:
    order = dataclasses.replace(on_files(tmp_path / "x", trained[0]), start=str(trained[1]))
    kept = {k: v for k, v in order.set.items() if not k.startswith("model.")}
    with pytest.raises(SpecError) as caught:
        run_training(dataclasses.replace(order, set=kept | {"model.width": 32}))
    said = str(caught.value)
    assert said.startswith(f"no layer of {trained[1]} fits this model: ")
    assert "encoder.blocks.0.mix.q.weight should be (32, 32), got (16, 16)" in said


def test_a_resumed_run_starts_from_the_same_model(trained: tuple[Path, Path], tmp_path: Path) -> None:
    """Not from one that took its place."""
    source = tmp_path / "source"
    shutil.copytree(trained[1] / "final", source)
    order = dataclasses.replace(on_files(tmp_path / "x", trained[0]), start=str(source))
    order = dataclasses.replace(order, set={k: v for k, v in order.set.items() if not k.startswith("model.")})
    stopped(order)
    folder = read_folder(source)
    changed = {name: tensor + 1 for name, tensor in folder.tensors().items()}
    write_folder(source, {**folder.files, "model.safetensors": pack(changed)})
    with pytest.raises(SpecError, match=r"start: .*source \([0-9a-f]{12}\) -> .*source \([0-9a-f]{12}\)"):
        run_training(order)


def test_a_run_does_not_start_from_itself(finished: Path) -> None:
    for start in (finished, finished / "best"):
        with pytest.raises(SpecError, match=r"cannot start from a model in its own folder .*; choose another --out"):
            run_training(dataclasses.replace(tiny(finished), start=str(start), fresh=True))
    assert (finished / "final").exists()


def test_a_damaged_model_is_told_before_anything_is_read(trained: tuple[Path, Path], tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(trained[1] / "final", source)
    (source / "model.safetensors").write_bytes(b"x")
    order = dataclasses.replace(on_files(tmp_path / "x", tmp_path / "nowhere.tsv"), start=str(source))
    with pytest.raises(CheckpointError, match=r"model\.safetensors should have"):
        run_training(order)
