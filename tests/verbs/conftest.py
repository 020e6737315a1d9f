"""Models for the verbs: tiny, trained once a session, none of them good."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.verbs.calling import call

QUICK = ["train.steps=100", "train.validate_every=50", "data.generate.count=2000", "data.generate.valid=20"]


def train(*words: object) -> None:
    said = call("train", *words, "--quiet")
    assert (said.code, said.err) == (0, ""), said


def settings(*pairs: str) -> list[str]:
    """Each as `--set` takes it."""
    return [word for pair in pairs for word in ("--set", pair)]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a model that copies letters, more or less."""
    out = tmp_path_factory.mktemp("runs") / "copy"
    train("copy", "--out", out, *settings(*QUICK))
    return out


@pytest.fixture(scope="session")
def other(model: Path) -> Path:
    """Another with the same vocabulary, a few steps on: close, but not the same."""
    out = model.with_name("other")
    train("copy", "--from", model, "--out", out, *settings(*QUICK, "train.steps=3", "train.schedule.warmup=1"))
    return out


@pytest.fixture(scope="session")
def polyglot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with two target languages."""
    here = tmp_path_factory.mktemp("polyglot")
    for language, mark in (("de", "!"), ("cs", "?")):
        pairs = "".join(f"{word}\t{word}{mark}\n" for word in ("one", "two", "three", "four", "five"))
        (here / f"{language}.tsv").write_text(pairs)
    corpora = ", ".join(f"{{paths: [{here}/{name}.tsv], target_lang: {name}}}" for name in ("de", "cs"))
    recipe = here / "both.yaml"
    recipe.write_text(
        f"task: translate\ndata: {{train: [{corpora}], tokenizer: chars, max_length: 16}}\n"
        "model: {width: 16, depth: 1, heads: 2, hidden: 16, dropout: 0.0}\n"
        "train: {steps: 2, schedule: {kind: constant, lr: 1.0e-3}}\ndecode: {beam: 1}\n"
    )
    train(recipe, "--out", here / "both")
    return here / "both"


@pytest.fixture(scope="session")
def letters(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two parallel files with strings like those the models were trained on."""
    here = tmp_path_factory.mktemp("letters")
    lines = ["abc", "jihgf", "a", "bdfhj", "cccc", "gab", "hide", "faced", "bagged", "jade"]
    for name in ("source", "target"):
        (here / name).write_text("".join(f"{line}\n" for line in lines))
    return here / "source", here / "target"
