"""Laws of tasks that use an encoder: a run resumed is the run never stopped, a folder is the model, rows are apart."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard.data.images import LoadedImage, read_image_set
from regard.engine.torch_engine import TorchEngine
from regard.files.folder import read_folder
from regard.serialization.load import load_model
from regard.tasks.common.capabilities import supports
from regard.tasks.common.training_hooks import Contrasts
from regard.training.train import run_training
from tests.laws.lines import check_lines
from tests.laws.uses import USES, Use
from tests.training.small import events, interrupted, traces
from tests.verbs.calling import call

pytestmark = pytest.mark.numeric

Ran = tuple[Use, Path, Path]


@pytest.fixture(scope="module", params=USES, ids=str)
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A task, where its data lies, and its finished run."""
    use: Use = request.param
    folder = tmp_path_factory.mktemp("task")
    (folder / "data").mkdir()
    run_training(use.order(folder / "data", folder / "run"))
    return use, folder / "data", folder / "run"


def inputs_of(use: Use, data: Path) -> list[str | LoadedImage]:
    found = read_image_set(data, "test") if use.task == "image" else None
    return list(use.inputs) if found is None else [found[i] for i in range(3)]


def test_stopped_and_resumed_is_never_stopped(ran: Ran, tmp_path: Path) -> None:
    use, data, run = ran
    interrupted(use.order(data, tmp_path), 1, 3, 5)
    assert traces(tmp_path) == traces(run)


def test_a_folder_is_the_model(ran: Ran) -> None:
    """What is loaded says the same, keeps the same files, and already has what the task needs."""
    use, data, run = ran
    folder = read_folder(run / "final")
    net, task, search = load_model(folder)
    model, inputs = regard.load(run), inputs_of(use, data)
    assert {name: folder[name] for name in task.files()} == task.files()
    assert task.adapt_spec(net.spec) == net.spec
    said, again = task.run(TorchEngine(net), inputs, search), model.run_all(inputs)  # type: ignore[arg-type]
    assert [[o.plain() for o in each] for each in said] == [[o.plain() for o in each] for each in again]
    assert len(said) == len(inputs)
    assert "Finished." in (run / "report.html").read_text()


def test_an_input_alone_gives_what_it_gives_among_others(ran: Ran) -> None:
    use, data, run = ran
    model, inputs = regard.load(run), inputs_of(use, data)
    model.net.double()
    together = model.run_all(inputs)  # type: ignore[arg-type]
    alone = [model.run_all([one])[0] for one in inputs]  # type: ignore[list-item]
    for (a, *_), (b, *_) in zip(together, alone, strict=True):
        assert use.task == "embed" or a.text == b.text
        assert a.log_prob == (None if b.log_prob is None else pytest.approx(b.log_prob, abs=1e-9))
        assert a.more.get("vector") == (None if "vector" not in b.more else pytest.approx(b.more["vector"], abs=1e-6))


def test_the_loss_of_a_batch_is_that_of_its_rows(ran: Ran) -> None:
    """But where the task says that rows are judged by one another, so that training keeps them together."""
    use, data, run = ran
    model = regard.load(run)
    net, task = model.net.double().eval(), model.task
    kind = type(task)
    raw = kind.read(kind.Settings.parse(kind.configure_data([use.write(data)]) | use.data), 1)
    examples = task.encode(raw.train)
    with torch.no_grad():
        whole = task.loss(net, task.batch(examples, np.arange(5)), 0.1)
        rows = [task.loss(net, task.batch(examples, np.arange(i, i + 1)), 0.1) for i in range(5)]
    apart = float(whole.total) == pytest.approx(sum(float(row.total) for row in rows), rel=1e-6)
    assert apart is not supports(task, Contrasts)
    assert whole.tokens == sum(row.tokens for row in rows)


def test_as_many_lines_out_as_in(ran: Ran, tmp_path: Path) -> None:
    """Also if some of them are paths to nothing, or lack the tab between two texts."""
    use, data, run = ran
    good = list(use.inputs)
    if use.task == "image":
        for i, image in enumerate(inputs_of(use, data)):
            assert isinstance(image, LoadedImage)
            Image.fromarray(image.pixels[..., 0]).save(tmp_path / f"{i}.png")
        (tmp_path / "damaged.png").write_bytes((tmp_path / "0.png").read_bytes()[:60])
        good = [str(tmp_path / f"{i}.png") for i in range(3)]
    bad = {"image": ("nowhere.png", "/dev/zero", "a\0b", str(tmp_path / "damaged.png")), "pairs": ("a",)}
    check_lines(run, good, *bad.get(use.task, bad.get(use.name, ()) if use.task == "classify" else ()))


def test_the_verbs(ran: Ran) -> None:
    """run, eval and show, as a shell would call them."""
    use, data, run = ran
    found = json.loads(call("eval", run, use.write(data), "--json").out)
    assert set(found["models"][0]["scores"]) == set(regard.load(run).task.metrics)
    assert "parameters" in call("show", run).out
    if use.inputs:
        said = call("run", run, "--json", stdin="\n".join([*use.inputs, "", use.inputs[0]]).encode())
        rows = [json.loads(line) for line in said.lines]
        assert [row["source"] for row in rows] == [*use.inputs, "", use.inputs[0]]
        assert rows[0]["outputs"] == rows[-1]["outputs"] and rows[-2]["outputs"] == []


def test_a_model_is_a_start_for_its_own_task(ran: Ran, tmp_path: Path) -> None:
    """All of its weights are taken."""
    use, data, run = ran
    run_training(dataclasses.replace(use.order(data, tmp_path / "new"), start=str(run)))
    weights = events(tmp_path / "new", "start")[0]["weights"]
    assert weights["left"] == weights["new"] == []
