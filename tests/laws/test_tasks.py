"""Whatever the task: a resumed run is the run that was never stopped, a model folder gives the model back, N in and N out.

A folder that was tampered with is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import regard
from regard import tasks
from regard.metrics import METRICS
from regard.registry import kind_of
from regard.tasks import find, names
from regard.tasks.common.losses import evaluate_loss
from regard.training.train import run_training
from tests.laws.hostile import check_hostile
from tests.laws.lines import check_lines
from tests.laws.tasks import TASK, Recipe, order_of
from tests.laws.uses import USES
from tests.training.small import interrupted, traces
from tests.verbs.calling import call

pytestmark = pytest.mark.numeric

CASES = [(task, name, example) for task, row in TASK.items() for name, example in row.items()]
each = pytest.mark.parametrize(("task", "name", "example"), CASES, ids=[f"{task}: {name}" for task, name, _ in CASES])
Example = Callable[[Path], Recipe]


@each
def test_stopped_and_resumed_is_never_stopped(tmp_path: Path, task: str, name: str, example: Example) -> None:
    """Also in the middle of an epoch, at its end, and with batches put together from several parts."""
    changes: dict[str, Any] = {
        "train__accumulate": 2,
        "train__steps": 8,
        "train__validate_every": 4,
        "train__batch_tokens": 64,
    }
    run_training(order_of(example, tmp_path, tmp_path / "whole", **changes))
    interrupted(order_of(example, tmp_path, tmp_path / "parts", **changes), 1, 3, 6)
    assert traces(tmp_path / "parts") == traces(tmp_path / "whole")


@each
def test_a_model_folder_gives_the_model_back(tmp_path: Path, task: str, name: str, example: Example) -> None:
    """The same scores on the same data, from a folder that has moved; and its report, card and tree are there."""
    run = tmp_path / "run"
    run_training(order_of(example, tmp_path, run, train__steps=3, train__validate_every=3))
    moved = (run / "final").rename(tmp_path / "moved")
    one, other = regard.load(run / "best"), regard.load(moved)
    assert one.task.settings == other.task.settings
    assert one.task.files() == other.task.files()
    raw = find(task).read(one.task.settings, 1)
    scores = [evaluate_loss(model.task, model.net, model.task.encode(raw.valid)) for model in (one, other)]
    assert scores[0] == scores[1]
    assert {name for name in one.task.metrics if not METRICS[name].decodes} <= set(scores[0])
    texts = ["the cat sat on the [MASK].", "dog", "the"]
    assert len(one.run(texts)) == 3
    assert one.run(texts, sample=False, beam=1) == other.run(texts, sample=False, beam=1)
    assert one.task.adapt_spec(one.spec) == one.spec, "it has what the task needs"
    one.net.double()
    among, alone = one.run_all(texts, sample=False, beam=2), [one.run_all([t], sample=False, beam=2)[0] for t in texts]
    for (a, *_), (b, *_) in zip(among, alone, strict=True):
        assert a.text == b.text
        assert a.log_prob == pytest.approx(b.log_prob, abs=1e-9)
    assert "Finished." in (run / "report.html").read_text()
    assert regard.show(moved).net.spec == one.spec
    check_lines(moved, texts, *(["<mask>" * 150] if task == "span" else []))
    check_hostile(moved, tmp_path / "spoiled")


@pytest.mark.parametrize("task", ["lm", "mlm", "span", "denoise"])
def test_the_verbs(tmp_path: Path, task: str) -> None:
    """eval, run and show, of tasks that read texts."""
    run, example = tmp_path / task, next(iter(TASK[task].values()))
    run_training(order_of(example, tmp_path, run, train__steps=2, train__validate_every=2))
    found = regard.evaluate(run, tmp_path / "play.txt", device="cpu")
    scores, metrics = list(found.models[0].scores), list(regard.load(run).task.metrics)
    beside = {
        "lm": ["perplexity", "bits_per_byte"],
        "span": ["perplexity"],
        "denoise": ["perplexity"],
        "mlm": [],
    }[task]
    assert scores == [*metrics, *beside, "unknown_tokens"]
    assert "on play.txt" in found.render()
    assert "parameters" in call("show", run).out
    lines = ["the [MASK]", "", "no mask", "[MASK] and [MASK]", "the [MASK]"]
    said = call("run", run, "--no-sample", "--beam", "1", "--json", stdin="\n".join(lines).encode())
    rows = [json.loads(line) for line in said.lines]
    assert [row["source"] for row in rows] == lines
    assert rows[0]["outputs"] == rows[-1]["outputs"]
    assert rows[1]["outputs"] == []
    assert len(call("run", run, "--no-sample", "--beam", "1", stdin="\n".join(lines).encode()).lines) == len(lines)


def test_every_file_in_the_folder_is_a_task() -> None:
    for path in Path(tasks.__file__).parent.glob("*.py"):
        assert path.stem == "__init__" or kind_of(find(path.stem)) == path.stem


def test_every_task_has_an_example() -> None:
    missing = set(names()) - set(TASK) - {use.task for use in USES}
    assert not missing, (
        f"add an example of {', '.join(missing)} to tests/laws/tasks.py or uses.py: the laws run over it then"
    )
