"""Requested settings win over automatic ones in every family, and are checked before a corpus is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.errors import SpecError
from regard.training.recipe import list_overrides, select_supported
from regard.training.request import TrainRequest
from regard.training.train import run_training
from tests.training.small import events, on_files

ADVICE = {"family": "transformer", "norm": "pre", "width": 128, "depth": 4, "heads": 4, "hidden_dropout": 0.1}


def test_another_family_is_told_only_what_it_knows() -> None:
    assert select_supported(ADVICE, {}) == ADVICE
    assert "norm" in ADVICE and "norm" not in select_supported(ADVICE, {"family": "marian"})
    assert select_supported(ADVICE, {"family": "marian"})["width"] == 128
    assert select_supported(ADVICE, {"spec": {}}) == {}


def test_what_was_asked_for_instead_is_told() -> None:
    advised = {"model": ADVICE, "train": {"epochs": 3, "schedule": {"kind": "wsd", "warmup": 20}}}
    asked = {"model": {"width": 32, "depth": 4, "dropout": 0.2}, "train": {"schedule": {"warmup": 5}}}
    assert list_overrides(advised, asked) == ["model.width 32", "train.schedule.warmup 5"]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    words = ["one two", "three", "four five six", "seven", "eight nine", "ten", "two one", "six", "nine", "five"]
    for name in ("a", "b"):
        (tmp_path / name).write_text("".join(f"{word}\n" for word in words))
    return tmp_path / "a", tmp_path / "b"


@pytest.mark.parametrize("family", ["marian", "t5", "bart"])
def test_every_family_of_two_sides_translates(family: str, files: tuple[Path, Path], tmp_path: Path) -> None:
    sets = {"model.family": family, "model.width": 16, "model.depth": 1, "model.heads": 2, "model.hidden": 16}
    sets |= {"train.steps": 1, "train.schedule": "constant", "data.metrics": ["exact"], "train.threads": 1}
    final = run_training(
        TrainRequest("translate", tuple(map(str, files)), set=sets, out=str(tmp_path / "run"), quiet=True)
    )
    assert final.exists()


def test_a_name_that_is_wrong_is_told_before_a_file_is_read(tmp_path: Path) -> None:
    missing = (str(tmp_path / "none.a"), str(tmp_path / "none.b"))
    with pytest.raises(SpecError, match=r"no key 'model.widht' in 'transformer'; did you mean 'width'"):
        run_training(TrainRequest("translate", missing, set={"model.widht": 64}, out=str(tmp_path / "run"), quiet=True))


def test_every_seed_is_judged_by_the_same_examples(files: tuple[Path, Path], tmp_path: Path) -> None:
    prints = []
    for seed in (1, 2):
        run_training(on_files(tmp_path / str(seed), *files, train__seed=seed, train__steps=4))
        prints.append(next(e["fingerprint"] for e in events(tmp_path / str(seed)) if e["event"] == "start"))
    assert prints[0] == prints[1]
