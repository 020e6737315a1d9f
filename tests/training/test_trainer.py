"""The loop itself: what a step is, in which order, at which rate, and when it ends."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.tasks.common.training_hooks import order_batches
from regard.training.schedule import Cosine
from tests.training.bare import fit, spy_on_steps, trainer, weights
from tests.training.small import events

pytestmark = pytest.mark.numeric


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_several_batches_are_one_large_batch(tmp_path: Path, smoothing: float) -> None:
    one, other = (trainer(tmp_path, train__label_smoothing=smoothing, train__clip_norm=0.1) for _ in range(2))
    parts = [np.array([0, 1, 2]), np.array([3]), np.array([4, 5, 6, 7, 8])]
    seen, also = spy_on_steps(one), spy_on_steps(other)
    first = one._update(parts)
    second = other._update([np.concatenate(parts)])
    assert first.tokens == second.tokens == int(one.data.train.lengths[:9, 1].sum()), (
        "all target tokens, end marks included"
    )
    assert (first.loss, first.norm) == pytest.approx((second.loss, second.norm), rel=1e-12)
    for name, grad in seen[0][1].items():
        torch.testing.assert_close(grad, also[0][1][name], rtol=0, atol=1e-10)
    for (name, a), b in zip(weights(one).items(), weights(other).values(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10, msg=name)


def test_the_gradient_is_that_of_the_loss_a_token(tmp_path: Path) -> None:
    """However batches are cut, a token weighs the same."""
    made = trainer(tmp_path, train__clip_norm=None, train__label_smoothing=0.1)
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
        made = trainer(tmp_path, train__clip_norm=clip)
        seen = spy_on_steps(made)
        before = made._update([np.arange(8)]).norm
        norms[clip] = math.sqrt(sum(float(g.square().sum()) for g in seen[0][1].values()))
        assert before == pytest.approx(norms[None], rel=1e-9), "the log tells the norm before clipping"
    assert norms[1e-3] == pytest.approx(1e-3, rel=1e-2)
    assert norms[1e3] == pytest.approx(norms[None], rel=1e-9)


def test_the_rate_of_the_schedule_from_the_first_step_on(tmp_path: Path) -> None:
    made = trainer(tmp_path, train__steps=6, train__validate_every=6)
    seen = spy_on_steps(made)
    assert fit(made)
    schedule = Cosine(lr=3e-3, warmup=3)
    wanted = [schedule.rate(step, total=6, width=16) for step in range(1, 7)]
    assert [rate for rate, _ in seen] == wanted
    assert [event["rate"] for event in events(tmp_path, "train")] == wanted
    assert wanted[0] == pytest.approx(1e-3)
    assert wanted[2] == 3e-3


def test_every_batch_of_every_epoch_in_its_order(tmp_path: Path) -> None:
    made = trainer(tmp_path, train__steps=7, train__accumulate=2, train__batch_tokens=64)
    seen: list[list[int]] = []
    real = made.task.batch

    def batch(examples: Any, indices: Any) -> Any:
        if made.net.training:
            seen.append(indices.tolist())
        return real(examples, indices)

    made.task.batch = batch  # type: ignore[method-assign]
    fit(made)
    buckets = order_batches(made.task, made.data.train, tokens=64, seed=made.train.seed)
    order = [indices.tolist() for epoch in range(4) for indices in buckets.epoch(epoch)]
    assert seen == order[: len(seen)]
    epoch = len(buckets.epoch(0))
    assert len(seen) > epoch
    assert sorted(i for indices in seen[:epoch] for i in indices) == list(range(60)), "each example once"


def test_batches_are_made_of_the_lengths_that_an_epoch_has(tmp_path: Path) -> None:
    """Words that are cut anew are of other lengths, and no batch is larger for that."""
    made = trainer(
        tmp_path, data__tokenizer={"kind": "bpe", "vocab": 60}, data__subword_sampling=0.5, train__batch_tokens=64
    )
    lengths = []
    for epoch in range(3):
        for indices in (indices for group in made.updates(epoch) for indices in group):
            batch = made.task.batch(made.fresh, indices)
            assert max(batch.given.ids.numel(), batch.source.ids.numel()) <= 64
        lengths.append(made.fresh.lengths.sum())
    assert len(set(lengths)) == 3


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
    made = trainer(tmp_path, train__batch_tokens=100_000, train__schedule="constant", **changes)
    assert made.total == total
    assert fit(made)
    assert made.state.step == total


def test_a_run_validates_ten_times_and_saves_then_unless_told_otherwise(tmp_path: Path) -> None:
    every = {"train__validate_every": None, "train__save_every": None}
    made = trainer(tmp_path, train__steps=95, **every)
    assert (made.validate_every, made.save_every) == (10, 10)
    made = trainer(tmp_path, train__steps=5, **every)
    assert (made.validate_every, made.save_every) == (1, 1)
