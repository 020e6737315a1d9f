"""`--plugin`: a metric, a mixer and a task of the user's own, as `examples/plugin.py` has them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from regard import families
from regard.laws.case import decode_in_chunks
from regard.laws.streaming import every_token
from regard.metrics import METRICS
from regard.nn.core.coords import Coords
from regard.nn.mixers import MIXERS
from regard.registry import Registry
from regard.tasks import find
from regard.tasks.common.task import TASKS
from tests.verbs.calling import ROOT, call
from tests.verbs.conftest import QUICK, settings

pytestmark = pytest.mark.numeric

PLUGIN = ("--plugin", ROOT / "examples" / "plugin.py")
OWN = ["task=vowels", "data.metrics=[cer, exact]", "model.decoder.block.mix=average"]


@contextmanager
def one_command() -> Iterator[None]:
    """What a plugin adds is gone afterwards, as it is when a process ends."""
    find("translate")
    tables: list[Registry[Any]] = [METRICS, MIXERS, TASKS]
    before = [dict(table._parts) for table in tables]
    yield
    for table, rows in zip(tables, before, strict=True):
        table._parts = rows


@pytest.fixture(autouse=True)
def _apart() -> Iterator[None]:
    with one_command():
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that needs the plugin, trained by a command that names it."""
    out = tmp_path_factory.mktemp("plugin") / "vowels"
    quick = [*QUICK, "train.steps=4", "train.schedule.warmup=1"]
    with one_command():
        said = call("train", "copy", *PLUGIN, *settings(*quick, *OWN), "--out", out)
    assert said.code == 0, said.err
    assert said.out == f"{out}/final\n"
    return out


def test_all_three_are_used(trained: Path) -> None:
    config = json.loads((trained / "final" / "config.json").read_text())
    assert config["task"] == "vowels"
    assert config["model"]["decoder"]["block"]["mix"] == {"kind": "average"}
    done = json.loads((trained / "log.jsonl").read_text().splitlines()[-1])
    assert done["scores"]["cer"] > 0
    assert all(set(row["source"]).isdisjoint("aeiou") for row in done["examples"])


SOURCED = """
from regard.metrics import METRICS, Metric

def repeated(outputs, references, sources):
    return 100.0 * sum(r == s for r, s in zip(references, sources, strict=True)) / len(outputs)

METRICS.add(Metric("repeated", repeated, reads_sources=True))
"""


def test_a_metric_that_reads_sources_scores_training_and_studies(tmp_path: Path) -> None:
    """The recipe `copy` has references that equal their sources; reversed, next to none."""
    (tmp_path / "sourced.py").write_text(SOURCED)
    quick = [*QUICK, "train.steps=2", "train.schedule.warmup=1", "data.metrics=[repeated]", "data.generate.valid=20"]
    said = call(
        "study", "compare", "copy", "--vary", "model.norm=pre,post", "--seeds", 2, "--processes", 0, "--plugin",
        tmp_path / "sourced.py", *settings(*quick), "--out", tmp_path / "study", "--json",
    )  # fmt: skip
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["metric"] == "repeated"
    assert [each["scores"] for each in found["contenders"]] == [[100.0, 100.0], [100.0, 100.0]]


def test_with_the_plugin_the_model_runs(trained: Path) -> None:
    assert call("run", trained, *PLUGIN, "--beam", 3, "bcd", "").code == 0


@pytest.mark.parametrize("cuts", [every_token(7), [3], [2, 5]])
def test_its_state_gives_what_the_whole_pass_gives(cuts: list[int]) -> None:
    """Our laws hold for a mixer of the user's own: here, streaming."""
    assert call("show", "tiny", *PLUGIN).code == 0
    plain = families.gpt.spec(width=8, depth=2, heads=2, vocab=11, length=12, dropout=0.0)
    net = plain.replace("decoder.block.mix", "average").build(seed=0).eval()
    tokens = torch.randint(11, (3, 7))
    with torch.no_grad():
        chunks, _ = decode_in_chunks(net, tokens, Coords.span(7), net.start(3, 7), cuts)
        torch.testing.assert_close(chunks, net(tokens, Coords.span(7)))


def test_the_model_is_shown(trained: Path) -> None:
    said = call("show", trained, *PLUGIN)
    assert said.code == 0
    assert "average\n" in said.out


@pytest.mark.parametrize("verb", ["run", "show"])
def test_without_the_plugin_the_model_cannot_be_opened(trained: Path, verb: str) -> None:
    said = call(verb, trained)
    assert (said.code, said.out) == (3, "")
    assert "config.json: no task 'vowels'; available: " in said.err
    assert said.err.endswith("; if a plugin adds it, load the plugin first: --plugin FILE, or import it in Python\n")


def test_without_the_plugin_nothing_else_has_changed(model: Path) -> None:
    assert call("run", model, *PLUGIN, "abc") == call("run", model, "abc")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x = 1\nraise ValueError('a wrong number')\n", ", line 2 failed with ValueError: a wrong number"),
        (
            "import regard\nfrom regard.nn import mixxer\n",
            ", line 2 failed with ImportError: cannot import name 'mixxer'",
        ),
        ("def f():\n    return 1 / 0\nf()\n", ", line 2 failed with ZeroDivisionError"),
        ("class Half(\n", " failed with SyntaxError: "),
        (
            "from regard.nn.core.mixer import MIXERS\n@MIXERS.add\nclass Full: ...\n",
            "failed with SpecError: there already is a mixer 'full'; choose another name",
        ),
    ],
)
def test_a_plugin_that_fails(tmp_path: Path, text: str, wanted: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    said = call("show", "tiny", "--plugin", file)
    assert (said.code, said.out) == (2, "")
    assert f"regard: the plugin {file}" in said.err
    assert wanted in said.err
    assert len(said.err.splitlines()) == 1


def test_the_traceback_of_a_plugin_is_there_for_debugging(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("raise ValueError('a wrong number')\n")
    said = call("show", "tiny", "--plugin", tmp_path / "mine.py", "--debug")
    assert said.code == 2
    assert "ValueError: a wrong number" in said.err
    assert f'File "{tmp_path}/mine.py", line 1' in said.err


@pytest.mark.parametrize("name", ["nowhere.py", "mine.txt", "."])
def test_a_plugin_is_a_python_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "mine.txt").write_text("x = 1\n")
    said = call("show", "tiny", "--plugin", tmp_path / name)
    assert said.code == 2
    assert "it should be a Python file, such as mine.py" in said.err
