"""Effect of taking away or exchanging a part.

ablate   the part's output becomes zero, or its mean over the data: what is each head, sublayer or block worth?
patch    the part's output becomes what it is for another input: where does the difference between two inputs arise?
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from regard.errors import DataError, SpecError, UnknownName
from regard.metrics.bootstrap import COVERAGE, Interval, check_samples
from regard.model.net import Net
from regard.nn.core.context import Tape
from regard.tasks.common.forward_pass import ForwardPass

ROUNDING = 1e-4
"""Differences of log P below this are those of the order in which numbers are added."""
ROWS = 16
"""Changed copies of an example that run together."""


@dataclasses.dataclass(frozen=True)
class Worth:
    """Fall of log P per prediction without a part, with 95 % intervals over examples.

    zero  with zeros for its output, which the parts above may never have seen
    mean  with its mean output over the data, which takes away only what it says about the example
    """

    place: str
    zero: Interval
    mean: Interval


@torch.no_grad()
def list_places(net: Net, read: ForwardPass, *patterns: str) -> list[str]:
    """The places that an example passes, in order; only those that fit a pattern, if there are any."""
    tape = Tape("*")
    read.run(net, tape)
    found = [name for name in tape.kept if not patterns or any(fnmatch.fnmatchcase(name, p) for p in patterns)]
    if not found:
        raise UnknownName("place", " ".join(patterns), list(tape.kept))
    return found


@torch.no_grad()
def ablate(
    net: Net,
    examples: Sequence[ForwardPass],
    places: Iterable[str],
    *,
    samples: int = 1000,
    seed: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> list[Worth]:
    """Measure the worth of each place on a data set: the mean fall of log P per prediction when its output says nothing.

    Both ways are measured, zeros and the mean over all positions of all examples.
    """
    if not examples:
        raise DataError("there are no examples to measure on")
    check_samples(samples)
    names = list(places)
    means = mean_outputs(net, examples, names)
    fillings = ({place: torch.zeros_like(mean) for place, mean in means.items()}, means)
    falls, counts = np.empty((len(fillings), len(names), len(examples))), np.empty(len(examples))
    for i, read in enumerate(examples):
        plain = read.log_probs(net).double()
        counts[i] = plain.shape[1]
        for way, filling in enumerate(fillings):
            for begin in range(0, len(names), ROWS):  # copies of an example, each without another part
                some = names[begin : begin + ROWS]
                replace = {place: partial(_fill_row, row=row, value=filling[place]) for row, place in enumerate(some)}
                with net.watch(Tape(replace=replace)):
                    told = read.repeat(len(some)).log_probs(net).double()
                falls[way, begin : begin + ROWS, i] = (plain - told).sum(1).cpu()
        if progress is not None:
            progress(i + 1, len(examples))
    draws = np.random.Generator(np.random.PCG64(seed)).integers(0, len(examples), (samples, len(examples)))
    score = falls.sum(-1) / counts.sum()
    low, high = np.percentile(falls[..., draws].sum(-1) / counts[draws].sum(-1), COVERAGE, axis=-1)
    return [
        Worth(place, *(Interval(float(score[w, i]), float(low[w, i]), float(high[w, i])) for w in range(len(fillings))))
        for i, place in enumerate(names)
    ]


@torch.no_grad()
def mean_outputs(net: Net, examples: Sequence[ForwardPass], places: Sequence[str]) -> dict[str, Tensor]:
    """The mean vector (d,) at each place, over all positions of all examples."""
    sums: dict[str, Tensor] = {}
    counts: Counter[str] = Counter()
    for read in examples:
        tape = Tape(*places)
        read.run(net, tape)
        for place, x in tape.kept.items():
            rows = x.flatten(0, -2)
            sums[place] = sums.get(place, 0) + rows.double().sum(0)
            counts[place] += len(rows)
    if missing := [place for place in places if place not in sums]:
        raise UnknownName("place", missing[0], list_places(net, examples[0]))
    return {place: total / counts[place] for place, total in sums.items()}


@dataclasses.dataclass(frozen=True)
class Patched:
    """Share of the difference that another input makes to a prediction, brought back by each place and position."""

    places: list[str]
    restored: Tensor
    """(places, n): 1 where patching gives the log P of the clean input, 0 where it changes nothing."""
    clean: float
    corrupt: float
    prediction: int = 0
    """Prediction that is traced, from 0."""

    def plain(self) -> dict[str, object]:
        """For programs; None where a place has no such position."""
        rows = [[None if v != v else round(v, 4) for v in row] for row in self.restored.tolist()]
        return {
            "places": self.places,
            "restored": rows,
            "clean": self.clean,
            "corrupt": self.corrupt,
            "prediction": self.prediction,
        }


@torch.no_grad()
def patch(
    net: Net, clean: ForwardPass, corrupt: ForwardPass, places: Sequence[str], prediction: int | None = None
) -> Patched:
    """Run the corrupt input with the clean input's output at one place and position, for each of them.

    Both inputs must have equally many tokens. The prediction is that of the clean input; by default the one that the other
    input changes most. If it changes none beyond rounding, there are no places.
    """
    if clean.ids.shape != corrupt.ids.shape or (clean.source is None) != (corrupt.source is None):
        raise SpecError(
            f"patching needs inputs of equally many tokens, got {len(clean.tokens)} and {len(corrupt.tokens)}"
        )
    if clean.source is not None and corrupt.source is not None and clean.source.shape != corrupt.source.shape:
        raise SpecError(
            f"patching needs inputs of equally many tokens, got {len(clean.source_tokens)} and {len(corrupt.source_tokens)}"
        )
    corrupt = dataclasses.replace(corrupt, wanted=clean.wanted)
    tape = Tape(*places)
    here, there = clean.log_probs(net, tape)[0], corrupt.log_probs(net)[0]
    if prediction is None:
        prediction = int((here - there).abs().argmax())
    good, bad = float(here[prediction]), float(there[prediction])
    gap = good - bad
    if abs(gap) < ROUNDING:
        return Patched([], torch.zeros(0, 0), good, bad, prediction)
    rows = []
    for place in places:
        if place not in tape.kept:
            raise UnknownName("place", place, list_places(net, clean))
        kept, found = tape.kept[place], []
        n = kept.shape[1]
        for position in range(n):
            one = Tape(replace={place: partial(_insert, kept=kept, position=position)})
            found.append((float(corrupt.log_probs(net, one)[0, prediction]) - bad) / gap)
        rows.append(found)
    width = max(map(len, rows))
    table = torch.full((len(rows), width), float("nan"), dtype=torch.double)
    for i, found in enumerate(rows):
        table[i, : len(found)] = torch.tensor(found, dtype=torch.double)
    return Patched(list(places), table, good, bad, prediction)


def _fill_row(x: Tensor, row: int, value: Tensor) -> Tensor:
    """`x` (b, …, d) with the same vector at every position of one row."""
    out = x.clone()
    out[row] = value.to(x)
    return out


def _insert(x: Tensor, kept: Tensor, position: int) -> Tensor:
    """`x` (b, n, …) with the tensor of another pass at one position."""
    out = x.clone()
    out[:, position] = kept[:, position]
    return out
