"""HR, NDCG and MRR: by hand, and against a plain implementation; ranks with ties, and what is not ranked."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from regard.metrics import METRICS
from regard.metrics.ranking import CUTOFFS, NAMES, gain_of_ranks
from regard.tasks.common.target_ranks import Targets, count_ranks, rank_targets

pytestmark = pytest.mark.numeric


def test_by_hand() -> None:
    """The target is first, third and twelfth."""
    found = {name: float(gain.mean()) for name, gain in gain_of_ranks(np.array([0.0, 2.0, 11.0])).items()}
    assert found["hr@1"] == pytest.approx(1 / 3)
    assert found["hr@5"] == found["hr@10"] == pytest.approx(2 / 3)
    assert found["hr@20"] == 1
    assert found["ndcg@10"] == pytest.approx((1 + 0.5 + 0) / 3)  # 1 / log₂ 2, 1 / log₂ 4
    assert found["ndcg@20"] == pytest.approx((1 + 0.5 + 1 / math.log2(13)) / 3)
    assert found["mrr"] == pytest.approx((1 + 1 / 3 + 1 / 12) / 3)
    assert all(name in METRICS for name in NAMES) and all(METRICS[name].higher for name in NAMES)


def plain_scores(scores: list[float], target: int, candidates: list[int]) -> dict[str, float]:
    """From a sorted list, as in a textbook: the gain of a hit at place i is 1 / log₂(i + 1), the ideal gain is 1."""
    order = sorted([target, *candidates], key=lambda item: -scores[item])
    place = order.index(target) + 1
    out = {"mrr": 1 / place}
    for k in CUTOFFS:
        relevant = [float(item == target) for item in order[:k]]
        out[f"hr@{k}"] = sum(relevant)
        out[f"ndcg@{k}"] = sum(r / math.log2(i + 2) for i, r in enumerate(relevant))
    return out


def test_against_a_plain_implementation() -> None:
    items, rows = 30, 20
    draw = torch.Generator().manual_seed(0)
    scores = torch.randn(rows, items + 1, generator=draw)
    target = torch.randint(1, items + 1, (rows,), generator=draw)
    order = torch.stack([torch.randperm(items, generator=draw)[:12] + 1 for _ in range(rows)])
    owned = [[i for i in order[r, :4].tolist() if i != target[r]] for r in range(rows)]
    some = [[i for i in order[r, 4:].tolist() if i != target[r]] for r in range(rows)]
    padded = torch.tensor([row + [0] * (8 - len(row)) for row in some])
    pairs = torch.tensor([(r, i) for r, row in enumerate(owned) for i in row])
    mine = count_ranks(scores, Targets(target, padded, (pairs[:, 0], pairs[:, 1])))
    for r in range(rows):
        rest = [i for i in range(1, items + 1) if i not in owned[r] and i != target[r]]
        full = plain_scores(scores[r].tolist(), int(target[r]), rest)
        sampled = plain_scores(scores[r].tolist(), int(target[r]), some[r])
        for name in full:
            np.testing.assert_allclose(mine[name][r].numpy(), [full[name], 1.0])
            np.testing.assert_allclose(mine[f"sampled_{name}"][r].numpy(), [sampled[name], 1.0])


def test_ties_count_half() -> None:
    """A model that scores all alike ranks every target in the middle, not first."""
    targets = Targets(torch.tensor([3]), torch.tensor([[1, 2, 4, 5]]), (torch.tensor([0]), torch.tensor([1])))
    full, sampled = rank_targets(torch.zeros(1, 8), targets)
    assert (full.tolist(), sampled.tolist()) == ([(7 - 2) / 2], [2.0])  # without the target and the owned item


def test_a_target_that_was_had_before_is_ranked() -> None:
    targets = Targets(torch.tensor([3]), torch.tensor([[1]]), (torch.tensor([0, 0]), torch.tensor([3, 2])))
    full, _ = rank_targets(torch.tensor([[9.0, 1.0, 8.0, 5.0, 6.0]]), targets)
    assert full.tolist() == [1.0]
