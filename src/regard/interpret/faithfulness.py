"""Is an explanation faithful to the model?

DeYoung et al. 2020: replace the tokens that an explanation ranks highest by padding, or all others, and see what the model
predicts.

comprehensiveness   p(all) − p(without the highest): large if the explanation found what matters
sufficiency         p(all) − p(only the highest): small if what it found is enough
correlation         of its scores with those of taking away each token by itself (Kendall's τ)

Each is averaged over several shares of tokens. A random explanation stands beside the others: one that does not beat it
explains nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import DataError, SpecError
from regard.interpret.attribution import METHODS, Attribution, embeddings, occlusion, use
from regard.metrics.bootstrap import COVERAGE, Interval, check_samples
from regard.model.net import Net
from regard.nn.core.context import Tape
from regard.tasks.common.forward_pass import ForwardPass

SHARES = (0.1, 0.2, 0.5)
"""Shares of the tokens that are taken away or kept."""


@dataclasses.dataclass(frozen=True)
class Faithfulness:
    """Averages over predictions, with 95 % intervals over examples."""

    comprehensiveness: Interval
    sufficiency: Interval
    correlation: Interval
    gain: Interval | None = None
    """Comprehensiveness minus that of random scores on the same examples; None if there were none."""

    @property
    def beats_random(self) -> bool:
        return self.gain is not None and self.gain.low > 0


@dataclasses.dataclass(frozen=True)
class _Case:
    comprehensiveness: float
    sufficiency: float
    correlation: float


def measure(
    net: Net,
    examples: Sequence[ForwardPass],
    methods: Mapping[str, Callable[[Net, ForwardPass, int], Attribution]] | None = None,
    *,
    predictions: int = 3,
    samples: int = 1000,
    seed: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Faithfulness]:
    """Faithfulness of each method on examples, for at most so many predictions of each, evenly spaced."""
    if not examples:
        raise DataError("there are no examples to measure on")
    check_samples(samples)
    methods = usable_methods(net, examples[0]) if methods is None else methods
    cases: dict[str, list[list[_Case]]] = {name: [] for name in methods}
    for done, read in enumerate(examples):
        count = len(read.places)
        chosen = sorted({round(i * (count - 1) / max(predictions - 1, 1)) for i in range(min(predictions, count))})
        for name in methods:
            cases[name].append([])
        for prediction in chosen:
            alone = occlusion(net, read, prediction).all
            for name, method in methods.items():
                scores = alone if method is occlusion else method(net, read, prediction).all
                cases[name][-1].append(_judge(net, read, prediction, scores, alone))
        if progress is not None:
            progress(done + 1, len(examples))
    means = {name: _mean_cases(found) for name, found in cases.items()}
    return {name: _summarize(own, means.get("random"), samples, seed) for name, own in means.items()}


def usable_methods(net: Net, read: ForwardPass) -> dict[str, Callable[[Net, ForwardPass, int], Attribution]]:
    """All methods that a model has what they need for: not attention, where there is none."""
    out = {}
    for name, method in METHODS.items():
        try:
            method(net, read, 0)
        except SpecError:
            continue
        out[name] = method
    return out


@torch.no_grad()
def _judge(net: Net, read: ForwardPass, prediction: int, scores: Tensor, alone: Tensor) -> _Case:
    order = scores.argsort(descending=True, stable=True)
    masks = []
    for share in SHARES:
        top = order[: max(1, round(share * len(order)))]
        without = torch.ones(len(order), dtype=torch.bool).index_fill_(0, top, False)
        masks += [without, ~without]
    keep, replace, begin = torch.stack(masks), {}, 0
    for place, (x, base) in embeddings(net, read).items():
        part = keep[:, begin : begin + x.shape[1], None].to(x.device)
        replace[place] = partial(use, other=torch.where(part, x, base))
        begin += x.shape[1]
    changed = read.repeat(len(masks)).log_probs(net, Tape(replace=replace))[:, prediction].double().exp().cpu()
    falls = float(read.log_probs(net)[0, prediction].double().exp()) - changed
    return _Case(float(falls[0::2].mean()), float(falls[1::2].mean()), kendall(scores, alone))


def kendall(a: Tensor, b: Tensor) -> float:
    """Kendall's τ-b of two rankings; 0 if one of them ranks nothing."""
    i, j = torch.triu_indices(len(a), len(a), 1)
    x, y = (a[i] - a[j]).sign(), (b[i] - b[j]).sign()
    size = float(x.abs().sum() * y.abs().sum())
    return float((x * y).sum()) / size**0.5 if size else 0.0


def _mean_cases(cases: list[list[_Case]]) -> NDArray[np.float64]:
    """(examples, 3): the mean over the predictions of each example."""
    return np.array([np.mean([dataclasses.astuple(case) for case in each], 0) for each in cases if each])


def _summarize(means: NDArray[np.float64], chance: NDArray[np.float64] | None, samples: int, seed: int) -> Faithfulness:
    columns = means if chance is None else np.column_stack([means, means[:, 0] - chance[:, 0]])
    draws = np.random.Generator(np.random.PCG64(seed)).integers(0, len(means), (samples, len(means)))
    low, high = np.percentile(columns[draws].mean(1), COVERAGE, axis=0)
    return Faithfulness(
        *(Interval(float(m), float(a), float(b)) for m, a, b in zip(columns.mean(0), low, high, strict=True))
    )
