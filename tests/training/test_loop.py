"""The loop itself: what a step is, what a bad step does, how runs are judged, and whose weights are kept."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
import pytest
import sacrebleu
import torch
from torch import Tensor

from regard.errors import CheckpointError, Diverged
from regard.folder import read_folder, unpack
from regard.tasks.task import Loss
from regard.tasks.translate import Translate, TranslateData
from regard.training.checkpoint import Checkpoints
from regard.training.log import Log, read_log
from regard.training.loop import BAD_STEPS, Data, Trainer
from regard.training.optim import mean
from regard.training.progress import Progress
from regard.training.recipe import Recipe, merged, read_recipe, set_path
from regard.training.run import execute
from regard.training.schedule import Cosine
from regard.training.stop import Stop
from tests.training.small import COPY, TINY, events, tiny


def trainer(folder: Path, **changes: Any) -> Trainer:
    """A trainer of the recipe `copy` in float64, with settings as in `tiny`."""
    settings = {**COPY, **TINY, **{path.replace("__", "."): value for path, value in changes.items()}}
    recipe = Recipe.parse(merged(read_recipe("copy"), *(set_path(path, value) for path, value in settings.items())))
    data = TranslateData.parse(recipe.data)
    raw = Translate.read(data, 1)
    task = Translate.prepare(data, raw)
    net = recipe.model_spec(task.facts()).build(1).double()
    examples = Data(task.encode(raw.train), task.encode(raw.valid), task.trials(raw.valid))
    log, checkpoints = Log(folder / "log.jsonl"), Checkpoints(folder / "checkpoints")
    return Trainer(net, task, examples, recipe.train, checkpoints=checkpoints, log=log)


def fit(made: Trainer, on_better: Callable[[], None] = lambda: None) -> bool:
    return made.fit(Stop(), Progress(1, quiet=True), on_better)


def weights(made: Trainer) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in made.net.named_parameters()}


def spy_on_steps(made: Trainer) -> list[tuple[float, dict[str, Tensor]]]:
    """The rate and the gradients of every step that is taken from now on."""
    seen: list[tuple[float, dict[str, Tensor]]] = []
    real = made.optimizer.step

    def step() -> None:  # type: ignore[misc]
        grads = {name: p.grad.clone() for name, p in made.net.named_parameters() if p.grad is not None}
        seen.append((made.optimizer.param_groups[0]["lr"], grads))
        real()

    made.optimizer.step = step  # type: ignore[method-assign, assignment]
    return seen


# What a step is.


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_several_batches_are_one_large_batch(tmp_path: Path, smoothing: float) -> None:
    one, other = (trainer(tmp_path, train__smoothing=smoothing, train__clip=0.1) for _ in range(2))
    parts = [np.array([0, 1, 2]), np.array([3]), np.array([4, 5, 6, 7, 8])]
    seen, also = spy_on_steps(one), spy_on_steps(other)
    first = one._update(parts)
    second = other._update([np.concatenate(parts)])
    assert first[0] == second[0] == int(one.data.train.lengths[:9, 1].sum()), "all target tokens, end marks included"
    assert first[1:] == pytest.approx(second[1:], rel=1e-12)
    for name, grad in seen[0][1].items():
        torch.testing.assert_close(grad, also[0][1][name], rtol=0, atol=1e-10)
    for (name, a), b in zip(weights(one).items(), weights(other).values(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10, msg=name)


def test_the_gradient_is_that_of_the_loss_a_token(tmp_path: Path) -> None:
    """However batches are cut, a token weighs the same."""
    made = trainer(tmp_path, train__clip=None, train__smoothing=0.1)
    group = [np.arange(5), np.arange(5, 20)]
    total, tokens = torch.zeros((), dtype=torch.float64), 0
    for indices in group:
        loss = made.task.loss(made.net, made.task.batch(made.data.train, indices), 0.1)
        total, tokens = total + loss.total, tokens + loss.tokens
    wanted = torch.autograd.grad(total / tokens, list(made.net.parameters()))
    seen = spy_on_steps(made)
    made._update(group)
    for grad, want in zip(seen[0][1].values(), wanted, strict=True):
        torch.testing.assert_close(grad, want, rtol=0, atol=1e-12)


def test_clipping(tmp_path: Path) -> None:
    norms = {}
    for clip in (None, 1e-3, 1e3):
        made = trainer(tmp_path, train__clip=clip)
        seen = spy_on_steps(made)
        *_, before, _ = made._update([np.arange(8)])
        norms[clip] = math.sqrt(sum(float(g.square().sum()) for g in seen[0][1].values()))
        assert before == pytest.approx(norms[None], rel=1e-9), "the log tells the norm before clipping"
    assert norms[1e-3] == pytest.approx(1e-3, rel=1e-2)
    assert norms[1e3] == pytest.approx(norms[None], rel=1e-9)


def test_the_rate_of_the_schedule_from_the_first_step_on(tmp_path: Path) -> None:
    made = trainer(tmp_path, train__steps=6, train__validate_every=6)
    seen = spy_on_steps(made)
    assert fit(made)
    schedule = Cosine(peak=3e-3, warmup=3)
    wanted = [schedule.rate(step, total=6, width=16) for step in range(1, 7)]
    assert [rate for rate, _ in seen] == wanted
    assert [event["rate"] for event in events(tmp_path, "train")] == wanted
    assert wanted[0] == pytest.approx(1e-3)
    assert wanted[2] == 3e-3


def test_every_batch_of_every_epoch_in_its_order(tmp_path: Path) -> None:
    made = trainer(tmp_path, train__steps=7, train__accumulate=2, train__tokens=64)
    seen: list[list[int]] = []
    real = made.task.batch

    def batch(examples: Any, indices: Any) -> Any:
        if made.net.training:
            seen.append(indices.tolist())
        return real(examples, indices)

    made.task.batch = batch  # type: ignore[method-assign]
    fit(made)
    order = [indices.tolist() for epoch in range(4) for indices in made.buckets.epoch(epoch)]
    assert seen == order[: len(seen)]
    epoch = len(made.buckets.epoch(0))
    assert len(seen) > epoch
    assert sorted(i for indices in seen[:epoch] for i in indices) == list(range(60)), "each example once"


def test_the_log_tells_the_mean_loss_of_its_window(tmp_path: Path) -> None:
    each, three = tmp_path / "each", tmp_path / "three"
    each.mkdir()
    three.mkdir()
    fit(trainer(each, train__steps=7, train__validate_every=7))
    fit(trainer(three, train__steps=7, train__validate_every=7, train__log_every=3))
    single, windows = events(each, "train"), events(three, "train")
    assert [event["step"] for event in windows] == [3, 6]
    counts = np.diff([0, *(event["tokens"] for event in single)])
    losses = np.array([event["loss"] for event in single])
    for window, part in zip(windows, (slice(0, 3), slice(3, 6)), strict=True):
        assert window["loss"] == pytest.approx(np.average(losses[part], weights=counts[part]), rel=1e-12)
        assert window["tokens"] == counts[: part.stop].sum()


@pytest.mark.parametrize(
    ("changes", "total"),
    [
        ({"train__steps": 7}, 7),
        ({"train__steps": 100, "train__epochs": 2}, 2),
        ({"train__steps": 1, "train__epochs": 9}, 1),
    ],
)
def test_training_ends_with_whichever_comes_first(tmp_path: Path, changes: dict[str, Any], total: int) -> None:
    made = trainer(tmp_path, train__tokens=100_000, train__schedule="constant", **changes)
    assert made.total == total
    assert fit(made)
    assert made.now.step == total


def test_a_run_validates_ten_times_and_saves_then_unless_told_otherwise(tmp_path: Path) -> None:
    every = {"train__validate_every": None, "train__save_every": None}
    made = trainer(tmp_path, train__steps=95, **every)
    assert (made.validate_every, made.save_every) == (9, 9)
    made = trainer(tmp_path, train__steps=5, **every)
    assert (made.validate_every, made.save_every) == (1, 1)


# Steps that are not finite.


class Poison:
    """A task whose loss is spoiled at some calls, counted from 1."""

    def __init__(self, task: Any, calls: Sequence[int], value: float) -> None:
        self.task, self.calls, self.value, self.call = task, set(calls), value, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)

    def loss(self, net: Any, batch: Any, smoothing: float) -> Loss:
        loss: Loss = self.task.loss(net, batch, smoothing)
        if not net.training:
            return loss
        self.call += 1
        spoiled = loss.total * self.value
        return dataclasses.replace(loss, total=spoiled, plain=spoiled.detach()) if self.call in self.calls else loss


def all_finite(folder: Path) -> bool:
    """Whether every number in every file of tensors below is finite; there must be some."""
    files = [path for path in folder.rglob("*.safetensors") if ".corrupt" not in str(path)]
    assert files
    tensors = [t for path in files for t in unpack(path.read_bytes(), path).values()]
    return all(bool(torch.isfinite(t).all()) for t in tensors if t.is_floating_point())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)
def test_a_bad_step_is_skipped_and_leaves_no_trace(tmp_path: Path, value: float) -> None:
    made = trainer(tmp_path, train__ema=0.5)
    updates = made._updates(0)
    made._update(updates[0])
    before, state = weights(made), {k: v.clone() for k, v in _state(made).items()}
    average = {k: v.clone() for k, v in made.ema.weights.items()} if made.ema else {}
    made.task = Poison(made.task, [2], value)  # type: ignore[assignment]
    made.train = dataclasses.replace(made.train, accumulate=2)
    made._update([updates[1][0], updates[2][0]])
    assert made.now.bad == 1
    for old, new in ((before, weights(made)), (state, _state(made)), (average, made.ema.weights if made.ema else {})):
        assert old.keys() == new.keys()
        assert all(torch.equal(old[name], new[name]) for name in old)
    assert all(p.grad is None for p in made.net.parameters())
    (event,) = read_log(tmp_path / "log.jsonl")
    assert (event["event"], event["step"]) == ("skip", 1)
    assert event["examples"] == [int(i) for i in [*updates[1][0], *updates[2][0]]][:8]
    made._update(updates[3] if len(updates) > 3 else updates[0])
    assert made.now.bad == 0
    assert not all(torch.equal(before[name], p) for name, p in weights(made).items()), "a good step goes on"


def _state(made: Trainer) -> dict[str, Tensor]:
    from regard.training.optim import optimizer_tensors

    return optimizer_tensors(made.net, made.optimizer)


def test_several_bad_steps_in_a_row_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Translate.prepare
    monkeypatch.setattr(Translate, "prepare", lambda *a: Poison(real(*a), range(7, 100), math.nan))
    with pytest.raises(Diverged) as caught:
        execute(tiny(tmp_path))
    assert caught.value.exit_code == 4
    said = str(caught.value)
    assert "5 steps in a row were not finite (step 11, loss nan, gradient norm nan, examples [" in said
    assert "lower train.schedule.peak and start over with --fresh, or go on from this run's best model" in said
    assert [event["step"] for event in events(tmp_path, "skip")] == [7, 8, 9, 10, 11]
    assert BAD_STEPS == 5
    loaded = Checkpoints(tmp_path / "checkpoints").load_newest()
    assert loaded is not None
    assert (loaded.step, loaded.facts["bad"]) == (10, 4), "a resumed run goes on counting"
    assert all_finite(tmp_path)


def test_four_bad_steps_are_forgiven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Translate.prepare
    monkeypatch.setattr(Translate, "prepare", lambda *a: Poison(real(*a), [2, 3, 4, 5, 7, 8, 9, 10], math.inf))
    execute(tiny(tmp_path))
    assert [event["step"] for event in events(tmp_path, "skip")] == [2, 3, 4, 5, 7, 8, 9, 10]
    assert all(math.isfinite(event["loss"]) for event in events(tmp_path, "train"))
    assert all_finite(tmp_path)


@pytest.mark.parametrize(
    ("save_every", "message"),
    [(1, "step 1 left weights that are not finite"), (12, "step 4 left weights that are not finite")],
)
def test_weights_that_overflow_are_never_written(tmp_path: Path, save_every: int, message: str) -> None:
    """A finite gradient and a rate without measure: the step itself overflows."""
    schedule = {"kind": "inverse_sqrt", "peak": 1e40, "warmup": 3, "start": 1e-3}
    with pytest.raises(Diverged, match=message):
        execute(tiny(tmp_path, train__schedule=schedule, train__save_every=save_every))
    assert not list(tmp_path.rglob("*.safetensors"))


def test_what_overflows_after_a_save_leaves_the_save(tmp_path: Path) -> None:
    made = trainer(tmp_path, train__save_every=1, train__steps=2, train__schedule="constant")
    fit(made)
    with torch.no_grad():
        next(iter(made.net.parameters())).view(-1)[3] = math.inf
    with pytest.raises(Diverged, match=r"step 2 left weights that are not finite \(embed"):
        made.save()
    with pytest.raises(Diverged, match="not finite"):
        made._judge(Progress(1, quiet=True), lambda: None)
    assert Checkpoints(tmp_path / "checkpoints").steps() == [2, 1]
    assert all_finite(tmp_path)


# Judging.


def scripted(made: Trainer, scores: Sequence[float], losses: Sequence[float] | None = None) -> Trainer:
    """A trainer whose validations give these scores, one after the other."""
    metric, rest = made.task.metrics[0], iter(zip(scores, losses or [1.0] * len(scores), strict=True))

    def evaluate(search: object = None) -> dict[str, float]:
        score, loss = next(rest)
        return {"loss": loss, "perplexity": math.exp(loss), metric: score}

    made.evaluate = evaluate  # type: ignore[method-assign, assignment]
    made.total, made.validate_every = len(scores), 1
    return made


@pytest.mark.parametrize(
    ("metric", "scores", "best"),
    [
        ("exact", [10, 30, 20, 30], [1, 2]),
        ("bleu", [5, 4, 3, 6], [1, 4]),
        ("wer", [90, 80, 85, 70], [1, 2, 4]),
        ("wer", [10, 20, 30, 40], [1]),
    ],
)
def test_better_is_what_the_metric_says(tmp_path: Path, metric: str, scores: list[float], best: list[int]) -> None:
    made = scripted(trainer(tmp_path, data__metrics=[metric]), scores)
    seen: list[int] = []
    assert fit(made, lambda: seen.append(made.now.step))
    assert seen == best
    assert (made.now.best_step, made.now.best) == (best[-1], scores[best[-1] - 1])


def test_of_equal_scores_the_lower_loss_wins(tmp_path: Path) -> None:
    made = scripted(trainer(tmp_path), [0, 0, 0, 50, 50], [3.0, 2.0, 2.5, 2.6, 2.6])
    seen: list[int] = []
    fit(made, lambda: seen.append(made.now.step))
    assert seen == [1, 2, 4]


@pytest.mark.parametrize(
    ("metric", "scores", "patience", "end"),
    [
        ("exact", [10, 20, 15, 14, 99, 99], 2, 4),
        ("exact", [10, 9, 11, 10, 12, 11], 2, 6),
        ("exact", [10, 9, 99, 99, 99, 99], 1, 2),
        ("wer", [10, 20, 30, 5, 5, 5], 2, 3),
        ("exact", [10, 9, 8, 7, 6, 5], None, 6),
    ],
)
def test_patience(tmp_path: Path, metric: str, scores: list[float], patience: int | None, end: int) -> None:
    made = scripted(trainer(tmp_path, data__metrics=[metric], train__patience=patience), scores)
    assert fit(made)
    assert made.now.step == end
    assert made.now.finished
    assert Checkpoints(tmp_path / "checkpoints").steps()[0] == end


def test_scores_are_those_of_the_libraries(tmp_path: Path) -> None:
    steps = {"train__steps": 150, "train__validate_every": 150, "train__save_every": 150, "train__schedule__peak": 0.02}
    made = trainer(tmp_path, data__metrics=["bleu", "chrf", "wer", "exact"], data__generate__valid=20, **steps)
    fit(made)
    scores = made.evaluate()
    references = [text for trial in made.data.trials for text in trial.references]
    assert len(made.outputs) == len(references) == 20
    assert any(made.outputs)
    assert scores["bleu"] == sacrebleu.corpus_bleu(made.outputs, [references]).score
    assert scores["chrf"] == sacrebleu.corpus_chrf(made.outputs, [references]).score
    assert scores["wer"] == 100 * jiwer.wer(references, made.outputs)
    assert scores["exact"] == 100 * sum(map(str.__eq__, made.outputs, references)) / 20
    loss = made.task.loss(made.net, made.task.batch(made.data.valid, np.arange(20)), 0.0)
    assert scores["loss"] == pytest.approx(float(loss.plain) / loss.tokens, rel=1e-9)
    assert scores["perplexity"] == pytest.approx(math.exp(scores["loss"]), rel=1e-12)


def test_validation_disturbs_nothing(tmp_path: Path) -> None:
    """Neither the weights nor the random numbers of training depend on whether anybody looked."""
    changes = {"train__steps": 8, "model__dropout": 0.2, "train__ema": 0.5}
    often = trainer(tmp_path / "a", **changes, train__validate_every=1)
    never = trainer(tmp_path / "b", **changes, train__validate_every=8)
    for made in (often, never):
        made.log.path.parent.mkdir(exist_ok=True)
        torch.manual_seed(7)
        fit(made)
    assert all(torch.equal(a, b) for a, b in zip(weights(often).values(), weights(never).values(), strict=True))


# Whose weights.


def test_the_moving_average_is_what_is_judged_and_exported(tmp_path: Path) -> None:
    made = trainer(tmp_path, train__ema=0.5, train__steps=4, train__validate_every=2)
    judged: list[dict[str, Tensor]] = []
    real = made.evaluate

    def evaluate(search: Any = None) -> dict[str, float]:
        judged.append(weights(made))
        return real(search)

    made.evaluate = evaluate  # type: ignore[method-assign]
    exported: list[dict[str, Tensor]] = []
    fit(made, lambda: exported.append(weights(made)))
    assert made.ema is not None
    for name, p in weights(made).items():
        assert torch.equal(judged[-1][name], made.ema.weights[name])
        assert not torch.equal(judged[-1][name], p), "training goes on with its own"
    assert torch.equal(exported[0]["embed.weight"], judged[0]["embed.weight"])


def test_the_exported_model_is_the_moving_average(tmp_path: Path) -> None:
    execute(tiny(tmp_path, train__ema=0.5, train__steps=4, train__validate_every=4))
    loaded = Checkpoints(tmp_path / "checkpoints").load_newest()
    assert loaded is not None
    for name in ("best", "final"):
        for key, tensor in read_folder(tmp_path / name).tensors().items():
            assert torch.equal(tensor, loaded.groups["average"][key])
            assert not torch.equal(tensor, loaded.groups["weights"][key])


@pytest.mark.parametrize(
    ("which", "metric", "scores", "kept"),
    [
        ("last", "exact", [9, 8, 7, 6, 5], [4, 5]),
        ("best", "exact", [1, 9, 2, 8, 3], [2, 4]),
        ("best", "wer", [1, 9, 2, 8, 3], [1, 3]),
        ("best", "exact", [5, 5, 5, 5, 5], [4, 5]),
    ],
)
def test_averaging(tmp_path: Path, which: str, metric: str, scores: list[float], kept: list[int]) -> None:
    """The mean of the last or the best, in closed form; those not wanted are not kept on disk."""
    changes = {"train__average": {"which": which, "count": 2}, "train__save_every": 1, "data__metrics": [metric]}
    made = scripted(trainer(tmp_path, **changes), scores)
    path: dict[int, dict[str, Tensor]] = {}
    real = made._set_aside
    made._set_aside = lambda *a: (path.__setitem__(made.now.step, weights(made)), real(*a))  # type: ignore
    fit(made)
    steps = sorted(step for step, _ in made.now.snapshots)
    assert steps == kept
    found, wanted = made.snapshots.mean(steps), mean(path[step] for step in kept)
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    half = (path[kept[0]]["embed.weight"] + path[kept[1]]["embed.weight"]) / 2
    torch.testing.assert_close(found["embed.weight"], half, rtol=1e-12, atol=1e-12)
    spoken_of = {step for facts in made.checkpoints.facts() for step, _ in facts["snapshots"]}
    assert {int(p.name[5:]) for p in made.snapshots.folder.iterdir()} == spoken_of


def test_averages_are_of_the_moving_average_where_there_is_one(tmp_path: Path) -> None:
    made = trainer(tmp_path, train__ema=0.5, train__average={"count": 1}, train__steps=4)
    fit(made)
    assert made.ema is not None
    found = made.snapshots.mean([4])
    assert all(torch.equal(found[name], tensor) for name, tensor in made.ema.weights.items())


def test_other_weights_for_a_while_and_back_again_also_after_an_error(tmp_path: Path) -> None:
    made = trainer(tmp_path)
    own, zeros = weights(made), {name: torch.zeros_like(p) for name, p in weights(made).items()}
    with pytest.raises(ZeroDivisionError), made.weights(zeros):
        assert all(not p.any() for p in made.net.parameters())
        _ = 1 / 0
    assert all(torch.equal(own[name], p) for name, p in weights(made).items())


def test_a_checkpoint_of_another_model_is_refused_with_all_faults(tmp_path: Path) -> None:
    small, large = trainer(tmp_path), trainer(tmp_path, model__hidden=64, model__depth=2)
    small.save()
    with pytest.raises(CheckpointError) as caught:
        large.resume()
    said = str(caught.value)
    assert "is of another model: " in said
    assert "encoder.blocks.1.mix.q.weight is missing" in said
    assert "encoder.blocks.0.feed.up.weight should be (64, 16), got (32, 16)" in said
