"""A plugin or test file that changed since: a study computes again, a run refuses to go on, and both say why."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regard.training.optimizer import OPTIMIZERS
from tests.training.small import COPY, TINY
from tests.verbs.calling import Said, call
from tests.verbs.conftest import settings

PLUGIN = """
import torch
from momentum_of_mine import MOMENTUM
from regard.spec import spec
from regard.training.optimizer import OPTIMIZERS, OptimizerSpec

@OPTIMIZERS.add
@spec
class Signs(OptimizerSpec):
    states = 1

    def build(self, net):
        return torch.optim.SGD(net.parameters(), lr=0.0, momentum=MOMENTUM)
"""
LESS = {**COPY, **TINY, "train.steps": 4, "train.validate_every": 2, "train.log_every": 2}
SET = settings(*(f"{path}={json.dumps(value)}" for path, value in LESS.items()))
Command = Callable[..., Said]


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A plugin with an optimizer, and a module beside it that it imports."""
    (tmp_path / "mine.py").write_text(PLUGIN)
    (tmp_path / "momentum_of_mine.py").write_text("MOMENTUM = 0.5\n")
    return tmp_path / "mine.py"


@pytest.fixture
def command(mine: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Calls a command with the plugin, as a process of its own would load it."""
    monkeypatch.syspath_prepend(str(mine.parent))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def run(*words: object) -> Said:
        before = dict(OPTIMIZERS._parts)
        try:
            return call(*words, "--plugin", mine)
        finally:
            OPTIMIZERS._parts = before
            sys.modules.pop("momentum_of_mine", None)

    return run


@pytest.fixture
def study(command: Command, tmp_path: Path) -> Callable[..., Said]:
    """The same study again and again."""
    vary, out = (
        ("--vary", "train.optimizer.kind=sgd,signs"),
        ("--metric", "loss", "--processes", 0, "--out", tmp_path / "study"),
    )
    return lambda *words: command("study", "compare", "copy", *vary, *SET, *out, *words)


def result(tmp_path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tmp_path / "study" / "compare.json").read_text())
    return found


def cells(tmp_path: Path) -> int:
    return len(list((tmp_path / "study" / "cells").iterdir()))


def test_a_study_computes_again_what_a_changed_plugin_computed(
    study: Callable[..., Said], mine: Path, tmp_path: Path
) -> None:
    said = study("--seeds", 2)
    assert said.code == 0, said.err
    first = result(tmp_path)
    assert set(first["made_with"]["plugins"]) == {"mine.py", "momentum_of_mine.py"}
    assert first["made_with"]["torch"]
    assert first["made_with"]["processors"]
    assert first["mixed"] == []

    (mine.parent / "momentum_of_mine.py").write_text("MOMENTUM = 0.9\n")
    said = study("--seeds", 2)
    was, now = (each["made_with"]["plugins"]["momentum_of_mine.py"] for each in (first, result(tmp_path)))
    assert was != now
    assert (
        "4 finished cells were computed with something else "
        f"(plugin momentum_of_mine.py: its code was {was} and is {now} now): "
        "sgd, seed 1, signs, seed 1, sgd, seed 2, signs, seed 2; computed again (--anyway takes them as they are)"
    ) in said.err
    assert cells(tmp_path) == 8
    scores = [[each["scores"] for each in found["contenders"]] for found in (first, result(tmp_path))]
    assert scores[0][0] == scores[1][0]
    assert scores[0][1] != scores[1][1]

    (mine.parent / "momentum_of_mine.py").write_text("MOMENTUM = 0.5\n")
    said = study("--seeds", 2)
    assert "computed with something else" not in said.err, "the old code has its results still"
    assert cells(tmp_path) == 8


def test_a_study_takes_results_of_other_code_on_request_and_names_them(
    study: Callable[..., Said], mine: Path, tmp_path: Path
) -> None:
    assert study("--seeds", 2).code == 0
    mine.write_text(f"{PLUGIN}\n# changed\n")
    said = study("--seeds", 3, "--anyway")
    assert said.code == 0, said.err
    assert cells(tmp_path) == 6
    assert said.lines[0].startswith(
        "mixed: of 6 cells used here, 4 finished cells were computed with something else (plugin mine.py: "
    )
    assert result(tmp_path)["mixed"] == [said.lines[0]]


def test_a_study_says_of_old_cells_that_their_code_is_not_known(study: Callable[..., Said], tmp_path: Path) -> None:
    assert study("--seeds", 2).code == 0
    for path in (tmp_path / "study" / "cells").iterdir():
        old = json.loads(path.read_text())
        del old["basis"], old["processor"]
        path.unlink()
        path.with_name(f"{path.stem[:-12]}{'0' * 12}.json").write_text(json.dumps(old))
    said = study("--seeds", 2, "--anyway")
    assert cells(tmp_path) == 4
    assert "(the code and test files they were made with were not recorded)" in said.lines[0]
    said = study("--seeds", 2)
    assert "were not recorded): sgd, seed 1" in said.err
    assert cells(tmp_path) == 8


def test_a_study_tests_again_on_a_changed_test_file(command: Command, tmp_path: Path) -> None:
    (tmp_path / "test.tsv").write_text("abc\tabc\nba\tba\n")
    words = (
        "study", "compare", "copy", "--vary", "model.norm=pre,post", *SET, "--processes", 0, "--seeds", 2,
        "--out", tmp_path / "study", "--test", tmp_path / "test.tsv",
    )  # fmt: skip
    said = command(*words)
    assert said.code == 0, said.err
    was = result(tmp_path)["made_with"]["tests"]["test"]
    (tmp_path / "test.tsv").write_text("abc\tcba\nba\tab\n")
    for option in ((), ("--anyway",)):  # results of other tests are never put beside these
        said = command(*words, *option)
        now = result(tmp_path)["made_with"]["tests"]["test"]
        assert was != now
        assert cells(tmp_path) == 8
        assert result(tmp_path)["mixed"] == []
        if not option:
            assert f"(the files of the test set 'test' were {was} and are {now} now): " in said.err
            assert said.err.count("computed again") == 1


def test_a_contender_identical_to_the_baseline_is_pointed_out(tmp_path: Path) -> None:
    said = call(
        "study", "compare", "copy", "--vary", "train.keep_checkpoints=2,3", *SET, "--processes", 0, "--seeds", 2,
        "--out", tmp_path / "study",
    )  # fmt: skip
    assert said.code == 0, said.err
    (verdict,) = result(tmp_path)["verdicts"]
    assert verdict["sentence"].startswith(
        "3: identical to the baseline in every seed: the change is probably not switched on; preliminary, no difference"
    )


def test_a_run_refuses_a_changed_plugin(command: Command, mine: Path, tmp_path: Path) -> None:
    words = ("train", "copy", *SET, "--set", "train.optimizer.kind=signs", "--quiet", "--out", tmp_path / "run")
    assert command(*words).code == 0
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert set(facts["plugins"]) == {"mine.py", "momentum_of_mine.py"}
    assert facts["processor"]
    card = (tmp_path / "run" / "final" / "README.md").read_text()
    assert f"| plugins | mine.py {facts['plugins']['mine.py']}, momentum_of_mine.py " in card
    mine.write_text(f"{PLUGIN}\n# changed\n")
    said = command(*words, "--set", "train.steps=6")
    assert said.code == 2
    assert (
        "run was started with another recipe, corpus or plugin: plugin mine.py: its code was "
        f"{facts['plugins']['mine.py']} and is "
    ) in said.err
    assert "train.steps" not in said.err
    assert "continue nevertheless with --anyway, or start over with --fresh" in said.err
    assert command(*words, "--set", "train.steps=6", "--anyway").code == 0
    changed = json.loads((tmp_path / "run" / "run.json").read_text())["plugins"]
    assert changed["mine.py"] != facts["plugins"]["mine.py"]
    assert command(*words, "--set", "train.steps=6").code == 0, "from now on, this is the run"


def test_train_and_eval_print_json_with_what_results_depend_on(tmp_path: Path) -> None:
    said = call("train", "copy", *SET, "--json", "--out", tmp_path / "run")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["model"] == str(tmp_path / "run" / "final")
    assert found["step"] == 4
    assert set(found["scores"]) >= {"loss", "exact"}
    assert set(found["facts"]) >= {"fingerprint", "plugins", "regard", "torch", "threads", "processor"}
    assert json.loads(call("train", "copy", *SET, "--json", "--out", tmp_path / "run").out) == found, "finished already"

    (tmp_path / "test.tsv").write_text("abc\tabc\nba\tba\n")
    first = json.loads(call("eval", tmp_path / "run", tmp_path / "test.tsv", "--json").out)
    assert set(first["versions"]) == {"regard", "torch", "python"}
    assert first["seed"] == 1
    (tmp_path / "test.tsv").write_text("abc\tabc\nba\tab\n")
    second = json.loads(call("eval", tmp_path / "run", tmp_path / "test.tsv", "--json").out)
    assert first["fingerprints"]["data"] != second["fingerprints"]["data"]
    assert first["fingerprints"]["models"] == second["fingerprints"]["models"]
