"""Every verb that opens a folder opens it through the same door: what one of them refuses, all refuse."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from regard.api.open_light import open_light
from regard.cli import app
from regard.errors import RegardError
from tests.hostile import whole
from tests.hostile.folders import ATTACKS, Place
from tests.verbs.calling import call

VERBS: dict[str, Callable[[Path, Path, Path], tuple[object, ...]]] = {
    # by verb, and how: the folder that means harm, a model that is honest, and a file of data
    "run": lambda folder, _, data: ("run", folder, "the cat"),
    "run with": lambda folder, model, data: ("run", model, "the cat", "--with", folder),
    "eval": lambda folder, _, data: ("eval", folder, data),
    "eval two": lambda folder, model, data: ("eval", model, folder, data),
    "show": lambda folder, _, data: ("show", folder),
    "look": lambda folder, _, data: ("look", folder, "the cat", "--text"),
    "convert": lambda folder, _, data: ("convert", folder, data.parent / "out", "--to", "hf"),
    "train from": lambda folder, _, data: ("train", "lm", data, "--from", folder, "--out", data.parent / "run", "--quiet"),
}  # fmt: skip
NO_FOLDER = {"check", "recipes", "doctor", "study", "serve"}
"""Verbs that open none, or in a process of its own (`serve`)."""
HARMS = (
    "ours: weights are what torch.save wrote",
    "ours: weights are a header of 2^63 bytes",
    "ours: config.json is a link that leads out",
    "ours: config.json is a pipe",
    "ours: the manifest lists '../outside/secret.safetensors'",
    "ours: a configuration with a kind that is an import",
    "ours: a tokenizer with a table of characters that points outside",
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("doors")
    whole.make(root / "ours", root / "hf")
    (root / "outside").mkdir()
    shutil.copy(root / "ours" / "model.safetensors", root / "outside" / "secret.safetensors")
    (root / "data").mkdir()
    (root / "data" / "text.txt").write_text("the cat sat\n" * 4)
    for i, name in enumerate(HARMS):
        shutil.copytree(root / "ours", root / str(i))
        _, spoil, seal = ATTACKS[name]
        place = Place(root / str(i), root / "outside", root / "canary")
        spoil(place)
        if seal:
            place.seal()
    return root


def test_every_verb_is_listed() -> None:
    verbs = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    verbs |= {group.name for group in app.registered_groups if group.name}
    assert verbs == {name.split()[0] for name in VERBS} | NO_FOLDER


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_refuses_what_means_harm(verb: str, root: Path) -> None:
    for i, name in enumerate(HARMS):
        said = call(*VERBS[verb](root / str(i), root / "ours", root / "data" / "text.txt"))
        assert said.code == 3, (name, said)
        assert said.out == "", (name, said)
        assert said.err.startswith("regard: "), (name, said)
        assert said.err.count("\n") == 1, (name, said)
    assert not (root / "canary").exists()


@pytest.mark.parametrize("verb", ["run", "show", "look"])
def test_an_honest_folder_is_opened(verb: str, root: Path) -> None:
    said = call(*VERBS[verb](root / "ours", root / "ours", root / "data" / "text.txt"))
    assert (said.code, said.err) == (0, ""), said


@pytest.mark.parametrize("name", [name for name, (way, _, _) in ATTACKS.items() if way == "ours"])
def test_no_folder_that_means_harm_is_opened_without_torch(name: str, root: Path, tmp_path: Path) -> None:
    """It is refused, or left to `regard.load`, which refuses it."""
    folder = shutil.copytree(root / "ours", tmp_path / "folder")
    place = Place(folder, root / "outside", root / "canary")
    _, spoil, seal = ATTACKS[name]
    spoil(place)
    if seal:
        place.seal()
    with suppress(RegardError):
        assert open_light(folder) is None


def test_what_a_folder_says_does_not_move_the_cursor(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "escapes"
    for name in ("ours: a configuration with an escape", "ours: weights are a name with an escape",
                 "ours: weights are a name of a megabyte"):  # fmt: skip
        shutil.copytree(root / "ours", folder)
        place = Place(folder, root / "outside", root / "canary")
        ATTACKS[name][1](place)
        place.seal()
        said = call("run", folder, "the cat")
        assert said.code == 3
        assert "\x1b" not in said.err
        assert "\x07" not in said.err
        assert len(said.err) < 5000
        assert ("\\x1b[2J" in said.err) == ("escape" in name)
        assert ("more characters" in said.err) == ("megabyte" in name)
        shutil.rmtree(folder)


def test_a_name_in_a_folder_cannot_forge_a_line(root: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(root / "ours", tmp_path / "forged")
    entry = {"size": 3, "sha256": "0" * 64}
    Place(folder, root, root).change("manifest.json", "files", {"x\nregard: all fine\u202e\ud800": entry})
    said = call("run", folder, "the cat")
    assert said.code == 3
    assert said.err.count("\n") == 1
    assert "x\\nregard: all fine\\u202e\\ud800" in said.err
