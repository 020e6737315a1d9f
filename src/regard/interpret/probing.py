"""Probing: can a linear classifier read it from a layer?

A logistic regression on frozen activations (Alain & Bengio 2016). A property that a random labeling gives as well is not in the
layer: `selectivity` is the accuracy minus that of a control with shuffled labels (Hewitt & Liang 2019).
"""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import DataError


@dataclasses.dataclass(frozen=True)
class Probe:
    """Accuracy on held-out vectors."""

    accuracy: float
    majority: float
    """Accuracy of always saying the most frequent label."""
    control: float
    """Accuracy of a probe trained on shuffled labels."""

    @property
    def selectivity(self) -> float:
        return self.accuracy - self.control


def probe(
    vectors: Tensor, labels: Tensor, *, test: float = 0.3, penalty: float = 1e-3, seed: int = 1, steps: int = 100
) -> Probe:
    """Train a linear classifier on vectors (items, d) with labels (items,), and score it on a part kept apart."""
    count = len(labels)
    held = round(count * test)
    if held < 1 or count - held < 2:
        raise DataError(f"a probe needs at least a few labeled vectors to train and test on, got {count}")
    draw = torch.Generator().manual_seed(seed)
    order = torch.randperm(count, generator=draw)
    train, rest = order[held:], order[:held]
    x = vectors.double()
    x = (x - x[train].mean(0)) / x[train].std(0).clamp(min=1e-6)
    classes = int(labels.max()) + 1
    shuffled = labels[train][torch.randperm(len(train), generator=draw)]
    found = [_accuracy(x, train, rest, y, labels, classes, penalty, steps) for y in (labels[train], shuffled)]
    majority = float((labels[rest] == labels[train].mode().values).double().mean())
    return Probe(found[0], majority, found[1])


def _accuracy(
    x: Tensor, train: Tensor, rest: Tensor, y: Tensor, labels: Tensor, classes: int, penalty: float, steps: int
) -> float:
    weight = torch.zeros(classes, x.shape[1], dtype=torch.double, requires_grad=True)
    bias = torch.zeros(classes, dtype=torch.double, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=steps, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(F.linear(x[train], weight, bias), y) + penalty * weight.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        told = F.linear(x[rest], weight, bias).argmax(-1)
    return float((told == labels[rest]).double().mean())
