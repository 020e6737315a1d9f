"""Losses of batches, and of whole test sets item by item.

While a model is evaluated, a `Loss` also has the counts of each row, so that perplexity or accuracy come with confidence
intervals over test items (`metrics.bootstrap`) as scores of outputs do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batch import IGNORE, Batch
from regard.metrics.items import CountedItems, Formula, percentage, perplexity, ratio
from regard.model.net import Net
from regard.nn.core.context import Tape
from regard.nn.core.state import State
from regard.tasks.common.capabilities import compute_loss, order_batches
from regard.tasks.common.task import Examples, Loss, Task

FORMULAS: dict[str, Formula] = {"loss": ratio, "perplexity": perplexity}
"""How scores follow from nats and tokens; all other scores are percentages of what was right."""


def sequence_loss(
    net: Net, stream: Tensor, batch: Batch, smoothing: float, tape: Tape, state: State | None = None
) -> Loss:
    """The loss of a stream (b, n, d) against the batch's targets, with the auxiliary losses on the tape."""
    rows = {}
    if net.training:
        total, plain = net.loss(stream, batch.wanted, smoothing)
    else:
        total, plain, rows["loss"] = row_losses(net, list(stream), list(batch.wanted), smoothing)
    return Loss(add_auxiliary(total, tape, batch.tokens), plain, batch.tokens, rows, state)


def row_losses(
    net: Net, streams: Sequence[Tensor], wanted: Sequence[Tensor], smoothing: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The summed loss of rows (n, d) against their targets (n,), its plain part, and nats and tokens of each row (b, 2)."""
    each = [net.loss(stream, targets, smoothing) for stream, targets in zip(streams, wanted, strict=True)]
    totals, plains = (torch.stack(side) for side in zip(*each, strict=True))
    tokens = torch.tensor([int((targets != IGNORE).sum()) for targets in wanted], dtype=torch.double)
    return totals.sum(), plains.sum(), torch.stack([plains.double().cpu(), tokens], 1)


def class_loss(net: Net, logits: Tensor, labels: Tensor, smoothing: float, tape: Tape) -> Loss:
    """The loss of logits (b, …, classes) against labels (b, …), of which IGNORE does not count."""
    scores, wanted = logits.float().flatten(0, -2), labels.flatten()
    nats = F.cross_entropy(scores, wanted, reduction="none")
    total = nats.sum()
    if smoothing:
        total = F.cross_entropy(scores, wanted, reduction="sum", label_smoothing=smoothing)
    tokens = int((wanted >= 0).sum())
    rows = {} if net.training else {"loss": pair_counts(nats.view(len(labels), -1), labels.view(len(labels), -1) >= 0)}
    return Loss(add_auxiliary(total, tape, tokens), nats.detach().sum(), tokens, rows)


def pair_counts(counted: Tensor, possible: Tensor) -> Tensor:
    """The counts of each row (b, 2): the sum of what is counted (b, n), and of what is possible (b, n)."""
    return torch.stack([counted.detach().double().sum(1), possible.double().sum(1)], 1).cpu()


def add_auxiliary(total: Tensor, tape: Tape, tokens: int) -> Tensor:
    """A summed loss with the auxiliary losses of the model's parts, which are means."""
    for extra in tape.losses.values():
        total = total + extra * tokens
    return total


# Of a whole test set. -------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class LossCounts:
    """For each metric that comes with the loss, the counts of each test item (items, 2)."""

    rows: Mapping[str, NDArray[np.float64]]

    @property
    def names(self) -> list[str]:
        """The metrics there are."""
        return ["loss", "perplexity", *(name for name in self.rows if name != "loss")]

    def items(self, name: str) -> CountedItems:
        """The test items of a metric, for a bootstrap."""
        counts = self.rows["loss" if name in FORMULAS else name]
        return CountedItems(counts, FORMULAS.get(name, percentage))

    def scores(self) -> dict[str, float]:
        """Every score on all items: loss per token (nats), perplexity, and percentages."""
        return {name: self.items(name).score() for name in self.names}


def count_losses(
    task: Task,
    net: Net,
    examples: Examples,
    *,
    tokens: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> LossCounts:
    """Evaluate a model on examples in batches of at most `tokens` tokens; `progress` gets the batches done, and all.

    Items are the rows of batches, in the order of the examples: two models that encode a corpus alike have the same
    items.
    """
    found: dict[str, list[NDArray[np.float64]]] = {}
    places: dict[str, list[NDArray[np.int64]]] = {}
    state, batches = None, order_batches(task, examples, tokens=tokens, seed=0, evaluate=True).epoch(0)
    with torch.no_grad():
        for i, indices in enumerate(batches):
            loss = compute_loss(task, net, task.batch(examples, indices).to(net.device), state=state)
            state = loss.state
            whole = torch.tensor(
                [[float(loss.plain), loss.tokens]], dtype=torch.double
            )  # of a task that counts no rows
            for name, rows in ({"loss": whole} | dict(loss.rows)).items():
                found.setdefault(name, []).append(rows.numpy())
                places.setdefault(name, []).append(indices.reshape(len(indices), -1)[: len(rows), 0])
            if progress is not None:
                progress(i + 1, len(batches))
    order = {name: np.argsort(np.concatenate(each), kind="stable") for name, each in places.items()}
    return LossCounts({name: np.concatenate(rows)[order[name]] for name, rows in found.items()})


def evaluate_loss(task: Task, net: Net, examples: Examples, *, tokens: int | None = None) -> dict[str, float]:
    """The scores that come with the loss, on all examples."""
    return count_losses(task, net, examples, tokens=tokens).scores()
