"""Losses item by item: their sum is the loss, whatever the batches, and models have intervals by them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from regard.metrics.bootstrap import bootstrap
from regard.tasks import find
from regard.tasks.common.losses import count_losses, evaluate_loss
from regard.training.train import run_training
from tests.laws.tasks import TASK, order_of
from tests.laws.uses import USES

pytestmark = pytest.mark.numeric


def examples_of(model: Any, name: str, **data: Any) -> Any:
    settings = model.task.settings.overlay(data)
    return model.task.encode(find(name).read(settings, 1).valid)


@pytest.mark.parametrize(
    "name", ["translate", "lm", "mlm", "span", "classify", "tag", "embed", "image", "babi", "frames", "recommend"]
)
def test_the_loss_is_the_sum_of_its_items(tmp_path: Path, name: str) -> None:
    """Also in batches of another size, by which only a contrastive loss may change."""
    if name in TASK:
        order = order_of(next(iter(TASK[name].values())), tmp_path, tmp_path / "run", train__steps=2)
    else:
        order = next(use for use in USES if use.task == name).order(tmp_path, tmp_path / "run")
    model = regard.load(run_training(order))
    model.net.double()
    examples = examples_of(model, name)
    found = count_losses(model.task, model.net, examples)
    assert found.scores() == evaluate_loss(model.task, model.net, examples)
    assert all(len(found.items(metric)) == len(examples) for metric in found.names)
    assert found.names[0] == "loss"
    assert found.likelihood == ("perplexity" in found.names) == (name != "recommend"), "one negative is no likelihood"
    seen: list[tuple[int, int]] = []
    other = count_losses(model.task, model.net, examples, tokens=64, progress=lambda *now: seen.append(now))
    assert seen[-1][0] == seen[-1][1] == len(seen)
    for metric in found.names:
        np.testing.assert_allclose(found.items(metric).counts, other.items(metric).counts, rtol=1e-6, atol=1e-9)
    comparison = bootstrap([each.items("loss") for each in (found, other)], higher=False, samples=20)
    assert comparison.differences[0, 1].difference == pytest.approx(0, abs=1e-6)
    assert comparison.scores[0].low <= comparison.scores[0].score <= comparison.scores[0].high


def test_of_a_stream_items_are_its_segments(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("the cat sat on the mat. " * 20)
    model = {"model.width": 16, "model.depth": 1, "model.heads": 2, "model.hidden": 16}
    path = tmp_path / "run"
    settings = {**model, "data.context": 8, "train.steps": 2, "train.schedule.warmup": 1, "train.threads": 1}
    made = regard.train("transformer_xl", [str(tmp_path / "text")], set=settings, out=path, quiet=True)
    examples = examples_of(made, "lm")
    found = count_losses(made.task, made.net, examples)
    assert len(found.items("loss")) == len(examples) > 1
    assert found.rows["loss"][:, 1].sum() == np.asarray(examples.lengths).sum()
