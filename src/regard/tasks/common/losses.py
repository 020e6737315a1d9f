"""Losses of batches, and of whole test sets item by item.

While a model is evaluated, a `Loss` also has the counts of each row, so that perplexity or accuracy come with confidence
intervals over test items (`metrics.bootstrap`) as scores of outputs do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batch import IGNORE, Batch
from regard.metrics.calibration import BINS, CALIBRATION, bin_predictions, calibration_error
from regard.metrics.items import CountedItems, Formula, percentage, perplexity, ratio
from regard.metrics.ranking import NAMES as RANKING
from regard.model.net import Net
from regard.nn.core.context import Tape
from regard.nn.core.state import State
from regard.tasks.common.task import Examples, Loss, Task
from regard.tasks.common.training_hooks import compute_loss, order_batches

FORMULAS: dict[str, Formula] = {
    "loss": ratio, "perplexity": perplexity, "ece": calibration_error, "brier": ratio, **dict.fromkeys(RANKING, ratio)
}  # fmt: skip
"""Functions from summed counts to scores; all other scores are percentages of what was right."""

Observer = Callable[[int, Tensor, Tensor], None]
"""Called with the number of a row in its batch, its logits (n, classes) and its targets (n,), all of which count."""
_observers: list[Observer] = []


@contextmanager
def observing_predictions(observer: Observer) -> Iterator[None]:
    """Within this block, the observer sees every prediction that a loss is computed of while a model is evaluated."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


def _show(rows: Iterable[tuple[Callable[[], Tensor], Tensor]]) -> None:
    """Show logits and targets of each row to the observers; logits are computed only for them."""
    for i, (logits, targets) in enumerate(rows if _observers else ()):
        there = targets != IGNORE
        if there.any():
            kept = logits().float()[there]
            for observer in _observers:
                observer(i, kept, targets[there])


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
    _show((partial(net.logits, stream), targets) for stream, targets in zip(streams, wanted, strict=True))
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
    if not net.training:
        each = logits.reshape(len(labels), -1, logits.shape[-1])
        _show(
            (partial(Tensor.float, row), right) for row, right in zip(each, labels.view(len(labels), -1), strict=True)
        )
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


class CalibrationCounts:
    """Observes predictions: for each row of a batch the bins of confidence, and squared distances to the truth."""

    def __init__(self, rows: int) -> None:
        self.bins, self.distances = np.zeros((rows, 3 * BINS)), np.zeros((rows, 2))

    def __call__(self, row: int, logits: Tensor, targets: Tensor) -> None:
        p = logits.double().softmax(-1)
        best, guess = p.max(-1)
        self.bins[row] += bin_predictions(best.cpu().numpy(), (guess == targets).cpu().numpy())
        true = p.gather(-1, targets[:, None])[:, 0]
        self.distances[row] += (float((1 - 2 * true + p.square().sum(-1)).sum()), len(targets))

    def rows(self) -> dict[str, Tensor]:
        return {"ece": torch.from_numpy(self.bins), "brier": torch.from_numpy(self.distances)}


# Of a whole test set. -------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class LossCounts:
    """For each metric that comes with the loss, the counts of each test item (items, 2)."""

    rows: Mapping[str, NDArray[np.float64]]
    likelihood: bool = True
    """True if the loss is a negative log-likelihood."""

    @property
    def names(self) -> list[str]:
        """The metrics there are."""
        usual = ["loss", "perplexity"] if self.likelihood else ["loss"]
        return [*usual, *(name for name in self.rows if name != "loss")]

    def items(self, name: str) -> CountedItems:
        """The test items of a metric, for a bootstrap."""
        counts = self.rows["loss" if name == "perplexity" else name]
        return CountedItems(counts, FORMULAS.get(name, percentage))

    def scores(self) -> dict[str, float]:
        """Every score on all items: loss per token (nats), perplexity if there is one, and percentages."""
        return {name: self.items(name).score() for name in self.names}


def count_losses(
    task: Task,
    net: Net,
    examples: Examples,
    *,
    tokens: int | None = None,
    metrics: Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> LossCounts:
    """Evaluate a model on examples in batches of at most `tokens` tokens; `progress` gets the batches done, and all.

    Metrics of calibration are computed only if they are among `metrics`: they take a softmax over all classes.

    Items are the rows of batches, in the order of the examples: two models that encode a corpus alike have the same
    items.
    """
    found: dict[str, list[NDArray[np.float64]]] = {}
    places: dict[str, list[NDArray[np.int64]]] = {}
    state, likelihood = None, True
    batches = order_batches(task, examples, tokens=tokens, seed=0, evaluate=True).epoch(0)
    calibrates = any(name in CALIBRATION for name in metrics)
    with torch.no_grad():
        for i, indices in enumerate(batches):
            counter = CalibrationCounts(len(indices))
            with observing_predictions(counter) if calibrates else nullcontext():
                loss = compute_loss(task, net, task.batch(examples, indices).to(net.device), state=state)
            state, likelihood = loss.state, loss.likelihood
            whole = torch.tensor(
                [[float(loss.plain), loss.tokens]], dtype=torch.double
            )  # of a task that counts no rows
            for name, rows in ({"loss": whole} | dict(loss.rows) | (counter.rows() if calibrates else {})).items():
                found.setdefault(name, []).append(rows.numpy())
                places.setdefault(name, []).append(indices.reshape(len(indices), -1)[: len(rows), 0])
            if progress is not None:
                progress(i + 1, len(batches))
    order = {name: np.argsort(np.concatenate(each), kind="stable") for name, each in places.items()}
    return LossCounts({name: np.concatenate(rows)[order[name]] for name, rows in found.items()}, likelihood)


def evaluate_loss(
    task: Task, net: Net, examples: Examples, *, tokens: int | None = None, metrics: Sequence[str] = ()
) -> dict[str, float]:
    """The scores that come with the loss, on all examples."""
    return count_losses(task, net, examples, tokens=tokens, metrics=metrics).scores()
