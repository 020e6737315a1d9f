"""Validation: scores, the best model, early stopping, and which weights are kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
import pytest
import sacrebleu
import torch
from torch import Tensor

from regard.decode import Search
from regard.errors import CheckpointError, SpecError
from regard.files.folder import read_folder
from regard.training.run.checkpoint import Checkpoints
from regard.training.step.weight_averaging import average_weights
from regard.training.train import run_training
from regard.training.trainer import Trainer
from tests.training.bare import fit, trainer, weights
from tests.training.small import tiny

pytestmark = pytest.mark.numeric


def scripted(made: Trainer, scores: Sequence[float], losses: Sequence[float] | None = None) -> Trainer:
    """A trainer whose validations give these scores, one after the other."""
    metric, rest = made.task.metrics[0], iter(zip(scores, losses or [1.0] * len(scores), strict=True))

    def evaluate() -> dict[str, float]:
        score, loss = next(rest)
        return {"loss": loss, "perplexity": math.exp(loss), metric: score}

    made.validator.scores = evaluate  # type: ignore[method-assign, assignment]
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
    assert fit(made, lambda: seen.append(made.state.step))
    assert seen == best
    assert (made.state.best_step, made.state.best) == (best[-1], scores[best[-1] - 1])


def test_of_equal_scores_the_lower_loss_wins(tmp_path: Path) -> None:
    made = scripted(trainer(tmp_path), [0, 0, 0, 50, 50], [3.0, 2.0, 2.5, 2.6, 2.6])
    seen: list[int] = []
    fit(made, lambda: seen.append(made.state.step))
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
    assert made.state.step == end
    assert made.state.finished
    assert Checkpoints(tmp_path / "checkpoints").steps()[0] == end


def test_scores_are_those_of_the_libraries(tmp_path: Path) -> None:
    steps = {"train__steps": 150, "train__validate_every": 150, "train__save_every": 150, "train__schedule__lr": 0.02}
    made = trainer(tmp_path, data__metrics=["bleu", "chrf", "wer", "exact"], data__generate__valid=20, **steps)
    fit(made)
    scores = made.validator.scores()
    references = [text for trial in made.data.sets for text in trial.references]
    assert len(made.validator.outputs) == len(references) == 20
    assert any(made.validator.outputs)
    assert scores["bleu"] == sacrebleu.corpus_bleu(made.validator.outputs, [references]).score
    assert scores["chrf"] == sacrebleu.corpus_chrf(made.validator.outputs, [references]).score
    assert scores["wer"] == 100 * jiwer.wer(references, made.validator.outputs)
    assert scores["exact"] == 100 * sum(map(str.__eq__, made.validator.outputs, references)) / 20
    loss = made.task.loss(made.net, made.task.batch(made.data.valid, np.arange(20)), 0.0)
    assert scores["loss"] == pytest.approx(float(loss.plain) / loss.tokens, rel=1e-9)
    assert scores["perplexity"] == pytest.approx(math.exp(scores["loss"]), rel=1e-12)


def test_while_training_goes_on_outputs_are_those_of_the_recipe_found_greedily(tmp_path: Path) -> None:
    made = trainer(tmp_path, decode__max_length=2, decode__repetition_guard=False, decode__beam=3, decode__n_best=2)
    asked: list[Search] = []
    real = made.task.run

    def run(nets: Any, inputs: Any, search: Search, options: Any) -> Any:
        asked.append(search)
        return real(nets, inputs, search, options)

    made.task.run = run  # type: ignore[method-assign]
    made.validator.scores()
    assert all(len(text) <= 2 for text in made.validator.outputs)
    made.validator.scores(greedy=False)
    kept = dict(max_length=2, repetition_guard=False)
    assert asked == [
        replace(made.validator.search, beam=1, n_best=1, **kept),
        replace(made.validator.search, beam=3, **kept),
    ]


def test_a_score_that_the_task_does_not_have_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("the cat sat on the mat. " * 40)
    with pytest.raises(SpecError, match="bleu needs output texts, and this task writes none"):
        run_training(tiny(tmp_path / "a", "gpt", (str(tmp_path / "text"),), data__metrics=["bleu"]))
    with pytest.raises(SpecError, match="this task has no pair_accuracy; available: loss, perplexity"):
        run_training(tiny(tmp_path / "b", data__metrics=["pair_accuracy"]))


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
    real = made.validator.scores

    def evaluate() -> dict[str, float]:
        judged.append(weights(made))
        return real()

    made.validator.scores = evaluate  # type: ignore[method-assign]
    exported: list[dict[str, Tensor]] = []
    fit(made, lambda: exported.append(weights(made)))
    assert made.steps.ema is not None
    for name, p in weights(made).items():
        assert torch.equal(judged[-1][name], made.steps.ema.weights[name])
        assert not torch.equal(judged[-1][name], p), "training goes on with its own"
    assert torch.equal(exported[0]["embed.weight"], judged[0]["embed.weight"])


def test_the_exported_model_is_the_moving_average(tmp_path: Path) -> None:
    run_training(tiny(tmp_path, train__ema=0.5, train__steps=4, train__validate_every=4))
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
    real = made._keep_snapshot
    made._keep_snapshot = lambda *a: (path.__setitem__(made.state.step, weights(made)), real(*a))  # type: ignore
    fit(made)
    steps = sorted(step for step, _ in made.state.snapshots)
    assert steps == kept
    found, wanted = made.snapshots.average(steps), average_weights(path[step] for step in kept)
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    half = (path[kept[0]]["embed.weight"] + path[kept[1]]["embed.weight"]) / 2
    torch.testing.assert_close(found["embed.weight"], half, rtol=1e-12, atol=1e-12)
    spoken_of = {step for facts in made.checkpoints.facts() for step, _ in facts["snapshots"]}
    assert {int(p.name[5:]) for p in made.snapshots.folder.iterdir()} == spoken_of


def test_averages_are_of_the_moving_average_where_there_is_one(tmp_path: Path) -> None:
    made = trainer(tmp_path, train__ema=0.5, train__average={"count": 1}, train__steps=4)
    fit(made)
    assert made.steps.ema is not None
    found = made.snapshots.average([4])
    assert all(torch.equal(found[name], tensor) for name, tensor in made.steps.ema.weights.items())


def test_other_weights_for_a_while_and_back_again_also_after_an_error(tmp_path: Path) -> None:
    made = trainer(tmp_path)
    own, zeros = weights(made), {name: torch.zeros_like(p) for name, p in weights(made).items()}
    with pytest.raises(ZeroDivisionError), made.net.use_weights(zeros):
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
