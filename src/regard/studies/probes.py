"""Further measurements of a trained model on test data."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import SpecError, UnknownName
from regard.metrics.calibration import calibration_error, reliability
from regard.model.net import Net
from regard.spec import Plain
from regard.tasks.common.losses import CalibrationCounts, Observer, observing_predictions
from regard.tasks.common.task import Examples, Task
from regard.tasks.common.training_hooks import is_streaming

Probe = Callable[[Net, Task, object], Plain]
"""Called with a model, its task and test data as the task reads it; the result is plain data."""
TEMPERATURES = tuple(float(t) for t in np.exp(np.linspace(np.log(0.25), np.log(4.0), 65)))
"""Temperatures that are tried."""


class _Temperatures:
    """Observes predictions: their summed loss at every temperature."""

    def __init__(self) -> None:
        self.nats = np.zeros(len(TEMPERATURES))

    def __call__(self, row: int, logits: Tensor, targets: Tensor) -> None:
        for i, temperature in enumerate(TEMPERATURES):
            self.nats[i] += float(F.cross_entropy(logits / temperature, targets, reduction="sum"))


class _Cooled:
    """Observes predictions: their calibration as they are, and at another temperature."""

    def __init__(self, temperature: float) -> None:
        self.temperature, self.counts = temperature, (CalibrationCounts(1), CalibrationCounts(1))

    def __call__(self, row: int, logits: Tensor, targets: Tensor) -> None:
        for counts, temperature in zip(self.counts, (1.0, self.temperature), strict=True):
            counts(0, logits / temperature, targets)


def measure_calibration(net: Net, task: Task, raw: object) -> Plain:
    """Reliability, calibration error and Brier score, before and after a temperature that was fitted on other items.

    Every other item is for fitting, the rest for measuring.
    """
    examples = task.encode(raw)
    fit, held = np.arange(0, len(examples), 2), np.arange(1, len(examples), 2)
    search = _Temperatures()
    _observe(net, task, examples, fit, search)
    temperature = TEMPERATURES[int(search.nats.argmin())]
    cooled = _Cooled(temperature)
    _observe(net, task, examples, held if len(held) else fit, cooled)
    out: Plain = {"temperature": temperature}
    for name, counts in zip(("before", "after"), cooled.counts, strict=True):
        out[name] = {
            "ece": calibration_error(counts.bins[0]),
            "brier": float(counts.distances[0, 0] / max(counts.distances[0, 1], 1.0)),
            "reliability": [[bar.confidence, bar.accuracy, bar.count] for bar in reliability(counts.bins[0])],
        }
    return out


def _observe(net: Net, task: Task, examples: Examples, chosen: NDArray[np.int64], observer: Observer) -> None:
    """Show the predictions of these examples to an observer, in batches of 16."""
    if is_streaming(task):
        raise SpecError("the calibration of a model that reads a stream (memory across batches) cannot be measured yet")
    with torch.no_grad(), observing_predictions(observer):
        for begin in range(0, len(chosen), 16):
            task.loss(net, task.batch(examples, chosen[begin : begin + 16]).to(net.device), 0.0)


PROBES: dict[str, Probe] = {"calibration": measure_calibration}


def run_probe(name: str, net: Net, task: Task, raw: object) -> Plain:
    """Measure by name."""
    if name not in PROBES:
        raise UnknownName("measurement", name, PROBES)
    return PROBES[name](net, task, raw)
