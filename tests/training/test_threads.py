"""A batch divided over threads: the same gradients as in one piece, the same step every time, and errors that come through."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from regard import tasks
from regard.families import gpt
from regard.nn.core import rng
from regard.nn.core.coords import Coords
from regard.tasks.common.capabilities import supports
from regard.tasks.common.training_hooks import Contrasts
from regard.training.step.data_parallel import MIN_TOKENS, ThreadGroup, split_rows

pytestmark = pytest.mark.numeric

ROWS = 6


def net(dropout: float = 0.0, **more: object) -> nn.Module:
    spec = gpt.spec(width=16, depth=2, heads=2, vocab=11, length=8, dropout=dropout)
    return spec.overlay({"decoder": more} if more else {}).build(seed=1).double()


def gradients(one: nn.Module, threads: ThreadGroup, accumulate: int = 1) -> tuple[dict[str, Tensor], float]:
    torch.manual_seed(5)
    ids = torch.randint(11, (ROWS * accumulate, 8))
    one.zero_grad(set_to_none=True)

    def work(rows: np.ndarray) -> tuple[Tensor, float]:
        loss, plain = one.loss(one(ids[rows], Coords.lengths([8] * len(rows))), ids[rows], 0.1)  # type: ignore[operator]
        return loss, float(plain)

    groups = np.split(np.arange(ROWS * accumulate), accumulate)
    parts = [part for group in groups for part in split_rows(group, threads.count)]
    number = threads.run(one, work, [(part, None if threads.count == 1 else rng.new_seed()) for part in parts])
    return {name: p.grad.clone() for name, p in one.named_parameters() if p.grad is not None}, number


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("count", [2, 4, 7])
def test_gradients_are_those_of_the_whole_batch(count: int, accumulate: int) -> None:
    whole, number = gradients(net(), ThreadGroup(1, 1), accumulate)
    parts, total = gradients(net(), ThreadGroup(count, 2), accumulate)
    assert total == pytest.approx(number, rel=1e-12)
    assert whole.keys() == parts.keys()
    for name, grad in whole.items():
        assert (grad - parts[name]).abs().max() < 1e-12, name


@pytest.mark.parametrize("more", [{}, {"recompute": True}, {"wiring": {"kind": "reversible", "dropout": 0.3}}], ids=str)
def test_with_dropout_a_step_is_the_same_every_time(more: dict[str, object]) -> None:
    """However the threads take turns; also where a block runs again for the backward pass."""
    one, threads = net(0.3, **more), ThreadGroup(3, 3)
    one.train()
    first, _ = gradients(one, threads, 2)
    for _ in range(5):
        again, _ = gradients(one, threads, 2)
        assert all(torch.equal(grad, again[name]) for name, grad in first.items())


def test_recomputing_draws_the_same_masks() -> None:
    """In a thread with a stream of its own, and in the main one."""
    one, two = net(0.3).train(), net(0.3, recompute=True).train()
    for threads in (ThreadGroup(1, 1), ThreadGroup(2, 2)):
        kept, again = gradients(one, threads)[0], gradients(two, threads)[0]
        assert all((grad - again[name]).abs().max() < 1e-12 for name, grad in kept.items())


def test_parts_drop_different_things() -> None:
    drawn = []
    layer = nn.Linear(1, 1)

    def work(part: int) -> tuple[Tensor, float]:
        drawn.append(rng.new_seed())
        return layer.weight.sum(), 1.0

    assert ThreadGroup(2, 2).run(layer, work, [(0, 1), (1, 2), (2, 1)]) == 3.0
    assert len(set(drawn)) == 2


def test_a_seed_of_ones_own_leaves_the_common_stream_alone() -> None:
    torch.manual_seed(3)
    wanted = rng.new_seed()
    torch.manual_seed(3)
    with rng.use_seed(7):
        inner = rng.new_seed()
        place = rng.RngSnapshot()
        following = rng.new_seed()
        for _ in range(2):
            with place:
                assert rng.new_seed() == following
    assert rng.new_seed() == wanted != inner


def test_an_error_in_a_thread_is_raised() -> None:
    def work(part: int) -> tuple[Tensor, float]:
        raise ValueError(f"part {part} is bad")

    with pytest.raises(ValueError, match="is bad"):
        ThreadGroup(2, 2).run(nn.Linear(1, 1), work, [(0, 1), (1, 2)])


def test_how_many() -> None:
    assert ThreadGroup.choose(2, 4096, "cpu").count == 2
    assert ThreadGroup.choose(8, 4 * MIN_TOKENS, "cpu").count == 4
    assert ThreadGroup.choose(2, MIN_TOKENS, "cpu").count == 1
    assert ThreadGroup.choose(8, 4096, "cuda").count == 1


def test_rows_are_dealt_out_so_that_parts_are_alike() -> None:
    parts = split_rows(np.arange(6), 4)
    assert [part.tolist() for part in parts] == [[0, 4], [1, 5], [2], [3]]
    assert len(split_rows(np.arange(3), 4)) == 3


def test_threads_of_the_caller_stay() -> None:
    before = torch.get_num_threads()
    gradients(net(), ThreadGroup(2, 2))
    assert torch.get_num_threads() == before


def test_rows_that_are_judged_by_one_another_stay_together() -> None:
    """Texts of a batch compete in a contrastive loss; other tasks' rows do not know of each other."""
    together = {name for name in tasks.names() if supports(tasks.find(name), Contrasts)}
    assert together == {"embed"}
