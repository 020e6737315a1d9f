"""`regard train` from the outside: where results and progress go, and what is refused before anything is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.verbs.calling import call
from tests.verbs.conftest import QUICK, settings

SHORT = settings(*QUICK, "train.steps=4", "train.validate_every=2", "train.schedule.warmup=1")


def test_the_result_is_on_stdout_and_progress_is_not(tmp_path: Path) -> None:
    said = call("train", "copy", "--out", tmp_path / "run", *SHORT)
    assert said.code == 0
    assert said.out == f"{tmp_path}/run/final\n"
    assert "step 2/4  loss" in said.err
    assert "\x1b" not in said.err
    again = call("train", "copy", "--out", tmp_path / "run", *SHORT)
    assert (again.code, again.out) == (0, said.out)
    assert "step 2/4" not in again.err


def test_another_recipe_is_refused_with_the_difference(tmp_path: Path) -> None:
    call("train", "copy", "--out", tmp_path / "run", *SHORT, "--quiet")
    said = call("train", "copy", "--out", tmp_path / "run", *SHORT, "--set", "train.seed=2")
    assert (said.code, said.out) == (2, "")
    assert "train.seed: 1 -> 2" in said.err
    assert "--fresh" in said.err
    assert call("train", "copy", "--out", tmp_path / "run", *SHORT, "--set", "train.seed=2", "--anyway").code == 0
    fresh = call("train", "copy", "--out", tmp_path / "run", *SHORT, "--set", "train.seed=2", "--fresh", "--quiet")
    assert (fresh.code, fresh.err) == (0, "")


def test_a_model_to_start_from(other: Path) -> None:
    assert json.loads((other / "run.json").read_text())["start"].startswith(str(other.with_name("copy")))


def test_files_of_ones_own(tmp_path: Path, letters: tuple[Path, Path]) -> None:
    small = settings("model.width=16", "model.depth=1", "train.epochs=2", "train.schedule.warmup=1")
    valid = [word for file in letters for word in ("--valid", file)]
    said = call("train", "translate", *letters, *valid, *small, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    assert "chosen: 10 pairs" in said.err
    assert said.out == f"{tmp_path}/run/final\n"


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["dates2"], "no recipe 'dates2'; did you mean 'dates'?"),
        (["mine.yaml"], "cannot read the recipe mine.yaml: No such file or directory"),
        (["copy", "--set", "train.stepz=3"], "no key 'train.stepz'; did you mean 'steps'?"),
        (["copy", "--set", "trian.steps=3"], "no key 'trian'; did you mean 'train'?"),
        (["copy", "--set", "train.steps=many"], "train.steps: "),
        (["copy", "--set", "train.steps"], "--set takes PATH=VALUE, such as train.steps=500, got 'train.steps'"),
        (["copy", "--set", "=3"], "--set takes PATH=VALUE"),
        (["copy", "--set", "train..steps=3"], "--set takes path=value, got the path 'train..steps'"),
        (["copy", "--set", "train.steps=[1"], "is not YAML"),
        (["copy", "--set", "task=translat"], "no task 'translat'; did you mean 'translate'?"),
        (["copy", "--set", "data.metrics=[exat]"], "no metric 'exat'; did you mean 'exact'?"),
        (["copy", "--set", "data.generate.kind=coppy"], "no generator 'coppy'; did you mean 'copy'?"),
        (["copy", "--set", "model.family=transfromer"], "no family 'transfromer'; did you mean 'transformer'?"),
        (["copy", "--set", "model.widht=8"], "no key 'model.widht' in 'transformer'; did you mean 'width'?"),
        (["copy", "--set", "train.optimizer.kind=adan"], "no optimizer 'adan'; did you mean 'adam'?"),
        (["copy", "--device", "gpu"], "no device 'gpu'"),
        (["copy", "--from", "nowhere"], "there is no model folder nowhere"),
        (["translate"], "no training data; name two text files"),
        (["translate", "one.txt"], "a corpus is two parallel text files or one .tsv, .csv, .jsonl file"),
        (["translate", "no.de", "no.en"], "cannot read no.de: No such file or directory"),
    ],
)
def test_what_cannot_be(tmp_path: Path, words: list[str], wanted: str) -> None:
    said = call("train", *words, "--out", tmp_path / "run")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("regard: ")
    assert wanted in said.err
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({"a.en": "one\n\nthree\n", "a.de": "eins\nzwei\ndrei\n"}, "{here}/a.en, line 2: the source is empty"),
        ({"a.en": "one\ntwo\n", "a.de": "eins\n"}, "{here}/a.en has 2 lines and {here}/a.de has 1"),
        ({"a.en": "one\nt\0wo\n", "a.de": "eins\nzwei\n"}, "{here}/a.en, line 2: a NUL at byte 5: this is not text"),
        ({"a.tsv": "one\teins\ntwo\n"}, "{here}/a.tsv, line 2: 1 columns, but the first line has 2"),
        ({"a.jsonl": "{}\n"}, "{here}/a.jsonl, line 1: should be an object with the texts 'source' and 'target'"),
        ({"a.tsv": "one\teins\n"}, "cannot hold out 1 of the 1 pairs of a.tsv for validation"),
    ],
)
def test_data_that_cannot_be_used(tmp_path: Path, files: dict[str, str], wanted: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    said = call("train", "translate", *(tmp_path / name for name in files), "--out", tmp_path / "run")
    assert (said.code, said.out) == (2, "")
    assert wanted.format(here=tmp_path) in said.err


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("task: [translate\n", "is not YAML"),
        ("- task\n", "should be a mapping with task, data, model and train, got list"),
        ("", "should be a mapping with task, data, model and train, got NoneType"),
        ("task: translate\ntrain: {steps: 1}\nmodle: {}\n", "no key 'modle'; did you mean 'model'?"),
        ("train: {steps: 1}\n", "task is missing"),
        (
            "task: translate\ndata: {generate: copy}\ntrain: {seed: 1}\n",
            "train needs a length: set `steps` or `epochs`",
        ),
        ("task: translate\ntrain: {steps: 0}\n", "train.steps: input should be greater than or equal to 1, got 0"),
    ],
)
def test_a_recipe_that_cannot_be(tmp_path: Path, text: str, wanted: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    said = call("train", tmp_path / "mine.yaml", "--out", tmp_path / "run")
    assert (said.code, said.out) == (2, "")
    assert wanted in said.err
