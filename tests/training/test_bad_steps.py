"""Steps that are not finite: skipped, named, forgiven a few times, and never on disk."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.errors import Diverged
from regard.files.folder import read_folder
from regard.files.tensors import unpack
from regard.tasks.common.task import Loss
from regard.tasks.lm import Lm
from regard.tasks.translate import Translate
from regard.training.request import TrainRequest
from regard.training.run.checkpoint import Checkpoints
from regard.training.run.log import read_log
from regard.training.run.progress_bar import Progress
from regard.training.step.bad_steps import BAD_STEPS
from regard.training.train import run_training
from regard.training.trainer import Trainer
from tests.training.bare import fit, trainer, weights
from tests.training.small import ROWS, events, on_files, tiny

pytestmark = pytest.mark.numeric


def poison(task: Any, calls: Sequence[int], value: float) -> Any:
    """The same task, its training loss multiplied by `value` at some calls, counted from 1."""
    spoiled, count = copy.copy(task), itertools.count(1)

    def spoil(real: Callable[..., Loss], net: Any, *given: Any) -> Loss:
        loss = real(net, *given)
        if not net.training or next(count) not in calls:
            return loss
        total = loss.total * value
        return dataclasses.replace(loss, total=total, plain=total.detach())

    for name in ("loss", "stream_loss"):
        if hasattr(task, name):
            setattr(spoiled, name, partial(spoil, getattr(task, name)))
    return spoiled


def all_finite(folder: Path) -> bool:
    """Whether every number in every file of tensors below is finite; there must be some."""
    files = [path for path in folder.rglob("*.safetensors") if ".corrupt" not in str(path)]
    assert files
    tensors = [t for path in files for t in unpack(path.read_bytes(), path).values()]
    return all(bool(torch.isfinite(t).all()) for t in tensors if t.is_floating_point())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)
def test_a_bad_step_is_skipped_and_leaves_no_trace(tmp_path: Path, value: float) -> None:
    made = trainer(tmp_path, train__ema=0.5)
    updates = made.updates(0)
    made._update(updates[0])
    before, state = weights(made), {k: v.clone() for k, v in _state(made).items()}
    assert made.steps.ema is not None
    average = {k: v.clone() for k, v in made.steps.ema.weights.items()}
    made.steps.task = poison(made.task, [2], value)
    made._update([updates[1][0], updates[2][0]])
    assert made.state.bad == 1
    for old, new in (
        (before, weights(made)),
        (state, _state(made)),
        (average, made.steps.ema.weights),
    ):
        assert old.keys() == new.keys()
        assert all(torch.equal(old[name], new[name]) for name in old)
    assert all(p.grad is None for p in made.net.parameters())
    (event,) = read_log(tmp_path / "log.jsonl")
    assert (event["event"], event["step"]) == ("skip", 1)
    numbers = [int(i) for i in [*updates[1][0], *updates[2][0]]][:8]
    assert [int(name.split()[1]) for name in event["examples"]] == numbers
    made._update(updates[3] if len(updates) > 3 else updates[0])
    assert made.state.bad == 0
    assert not all(torch.equal(before[name], p) for name, p in weights(made).items()), "a good step goes on"


def _state(made: Trainer) -> dict[str, Tensor]:
    from regard.training.optimizer import optimizer_state

    return optimizer_state(made.net, made.steps.optimizer)


def test_several_bad_steps_in_a_row_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Translate.prepare
    monkeypatch.setattr(Translate, "prepare", lambda *a: poison(real(*a), range(7, 100), math.nan))
    with pytest.raises(Diverged) as caught:
        run_training(tiny(tmp_path))
    assert caught.value.exit_code == 4
    said = str(caught.value)
    assert said.startswith("step 11 was not finite (loss nan, gradient norm nan): example ")
    assert ", as were the 4 before it. The last finite weights, of step 6, are saved. If these examples are " in said
    assert "lower train.schedule.lr and start over with --fresh, or start from this run's best model" in said
    assert [event["step"] for event in events(tmp_path, "skip")] == [7, 8, 9, 10, 11]
    assert BAD_STEPS == 5
    loaded = Checkpoints(tmp_path / "checkpoints").load_newest()
    assert loaded is not None
    assert (loaded.step, loaded.facts["bad"]) == (11, 5), "a resumed run goes on counting"
    assert all_finite(tmp_path)


def test_four_bad_steps_are_forgiven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = Translate.prepare
    monkeypatch.setattr(Translate, "prepare", lambda *a: poison(real(*a), [2, 3, 4, 5, 7, 8, 9, 10], math.inf))
    run_training(dataclasses.replace(tiny(tmp_path), quiet=False))
    told = [line for line in capsys.readouterr().err.splitlines() if "finite" in line]
    for number, line in zip((2, 3, 4), told[:-1], strict=True):
        assert line.startswith(f"skipped: step {number} was not finite (loss inf, gradient norm nan): example ")
    assert told[-2].endswith("; further ones are only in log.jsonl")
    assert told[-1] == "8 of 12 steps were not finite and were skipped; log.jsonl lists their examples"
    assert [event["step"] for event in events(tmp_path, "skip")] == [2, 3, 4, 5, 7, 8, 9, 10]
    assert all(math.isfinite(event["loss"]) for event in events(tmp_path, "train"))
    assert all_finite(tmp_path)


@pytest.mark.parametrize(
    ("save_every", "message"),
    [(1, r"step 1 left numbers that are not finite \(weights: "), (12, "step 4 left numbers that are not finite")],
)
def test_weights_that_overflow_are_never_written(tmp_path: Path, save_every: int, message: str) -> None:
    """A finite gradient and a rate without measure: the step itself overflows."""
    schedule = {"kind": "inverse_sqrt", "lr": 1e40, "warmup": 3, "start": 1e-3}
    with pytest.raises(Diverged, match=message):
        run_training(tiny(tmp_path, train__schedule=schedule, train__save_every=save_every))
    assert not list(tmp_path.rglob("*.safetensors"))


def test_what_overflows_after_a_save_leaves_the_save(tmp_path: Path) -> None:
    made = trainer(tmp_path, train__save_every=1, train__steps=2, train__schedule="constant")
    fit(made)
    with torch.no_grad():
        next(iter(made.net.parameters())).view(-1)[3] = math.inf
    with pytest.raises(Diverged, match=r"step 2 left numbers that are not finite \(weights: embed"):
        made.save()
    with pytest.raises(Diverged, match="not finite"):
        made._validate(Progress(1, quiet=True), lambda: None)
    assert Checkpoints(tmp_path / "checkpoints").steps() == [2, 1]
    assert all_finite(tmp_path)


# Which examples they were, and what is left.


def always(task: type[Any], monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    """All losses are bad from this call on."""
    real = task.prepare
    monkeypatch.setattr(task, "prepare", lambda *a: poison(real(*a), range(first, 1000), math.nan))


def test_examples_are_named_by_file_and_line(tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    always(Translate, monkeypatch, 3)
    with pytest.raises(Diverged) as caught:
        run_training(on_files(tmp_path / "run", corpus, decode__beam=1))
    for name in events(tmp_path / "run", "skip")[0]["examples"]:
        place, _, rest = name.partition(": example ")
        path, line = place.split(", line ")
        assert path == str(corpus)
        assert repr(ROWS[int(line) - 1].split("\t")[0]) == rest.split(" ", 1)[1]
    assert f"{corpus}, line " in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"train__ema": 0.5, "train__average": {"which": "last", "count": 2}},
        {"train__accumulate": 3, "train__batch_tokens": 32},
        {"train__threads": 2, "train__batch_tokens": 1024},
    ],
    ids=["averages", "accumulation", "threads"],
)
def test_the_last_good_weights_are_kept(
    tmp_path: Path, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a checkpoint and, although nobody has judged yet, as a model; the same command goes on behind the bad steps."""
    order = tiny(tmp_path, **changes, train__save_every=12, train__validate_every=12)
    with monkeypatch.context() as patch:
        always(Translate, patch, 1 + 2 * changes.get("train__accumulate", changes.get("train__threads", 1)))
        with pytest.raises(Diverged, match="The last finite weights, of step 2, are saved"):
            run_training(order)
    assert [event["step"] for event in events(tmp_path, "skip")] == [3, 4, 5, 6, 7]
    loaded = Checkpoints(tmp_path / "checkpoints").load_newest()
    assert loaded is not None and loaded.step == 7
    kept = loaded.groups["average" if "train__ema" in changes else "weights"]
    assert all(torch.equal(kept[name], t) for name, t in read_folder(tmp_path / "best").tensors().items())
    assert all_finite(tmp_path)
    run_training(order)
    assert [event["step"] for event in events(tmp_path, "train")] == [1, 2, *range(8, 13)]


def test_the_last_steps_are_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same command takes no step more: the weights that are left are judged, and the run is done."""
    order = tiny(tmp_path, train__average={"which": "last", "count": 2})
    with monkeypatch.context() as patch:
        always(Translate, patch, 8)
        with pytest.raises(Diverged, match="step 12 was not finite"):
            run_training(order)
    run_training(order)
    assert [event["step"] for event in events(tmp_path, "valid")] == [4, 8, 12]
    assert [event["step"] for event in events(tmp_path, "done")] == [12]
    loaded = Checkpoints(tmp_path / "checkpoints").load_newest()
    assert loaded is not None and loaded.step == 12 and loaded.facts["finished"]
    assert [step for step, _ in loaded.facts["snapshots"]] == [8, 12]


def test_a_stream_forgets_what_it_read_in_a_bad_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat; the dog sat on the cat. " * 12)
    small = {"data.context": 8, "model.width": 16, "model.depth": 1, "model.heads": 2, "model.hidden": 32}
    train = {
        "model.memory_length": 12,
        "train.steps": 9,
        "train.batch_tokens": 40,
        "train.schedule.warmup": 2,
        "train.threads": 1,
    }
    order = TrainRequest("transformer_xl", (str(text),), set=small | train, out=str(tmp_path / "run"), quiet=True)
    with monkeypatch.context() as patch:
        always(Lm, patch, 3)
        with pytest.raises(Diverged, match=r"example \d+ \d+ \d+ '.*The last finite weights, of step 2, are saved"):
            run_training(order)
    loaded = Checkpoints(tmp_path / "run" / "checkpoints").load_newest()
    assert loaded is not None and "stream" not in loaded.groups and all_finite(tmp_path / "run")
    run_training(order)


def test_memory_that_is_not_finite_makes_a_bad_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = trainer(tmp_path)
    monkeypatch.setattr(made.steps.stream_state, "tensors", lambda: {"0.past": torch.tensor([1.0, math.inf])})
    before = weights(made)
    made._update(made.updates(0)[0])
    assert made.state.bad == 1 and all(torch.equal(before[name], p) for name, p in weights(made).items())


def test_all_that_is_saved_must_be_finite(tmp_path: Path) -> None:
    """Not the weights alone: what the optimiser remembers and averages too, and the message names it."""
    for group, spoil in (
        ("optimizer: ", lambda made: next(iter(_state(made).values())).fill_(math.inf)),
        ("average: ", lambda made: next(iter(made.steps.ema.weights.values())).fill_(math.nan)),
    ):
        made = trainer(tmp_path, train__ema=0.5)
        made._update(made.updates(0)[0])
        spoil(made)
        with pytest.raises(Diverged, match=rf"step 0 left numbers that are not finite \({group}"):
            made.save()
        with pytest.raises(Diverged, match=group):
            made._validate(Progress(1, quiet=True), lambda: None)
    assert not (tmp_path / "checkpoints").exists()


def test_a_validation_loss_that_is_not_finite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = trainer(tmp_path)
    monkeypatch.setattr(made.validator, "scores", lambda: {"loss": math.nan, "perplexity": math.nan, "exact": 0.0})
    with pytest.raises(Diverged, match="the validation loss after step 0 is nan; earlier checkpoints are intact"):
        made._validate(Progress(1, quiet=True), lambda: pytest.fail("it is exported"))
