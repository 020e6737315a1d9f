"""Accuracy and F1 of classes, from counts of labels.

An output is one label, or a sequence of labels: separated by spaces (one label per word) or not (one label per character).
F1 of a class is 2·hits / (predicted + true); macro F1 is the mean over the classes that are predicted or true. Spans are
those of CoNLL (Tjong Kim Sang 2002): B-x followed by I-x, correct if class and both ends are correct.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from regard.metrics.items import CountedItems, count_items, percentage

SplitLabels = Callable[[str], list[str]]
Span = tuple[str, int, int]
MISSING = ""
"""Stands for the labels that the shorter side lacks."""


@dataclass(frozen=True)
class ClassCounts:
    """Counts of a class: predicted, true, and both at once; scores are percentages."""

    name: str
    predicted: int
    true: int
    hits: int

    @property
    def precision(self) -> float:
        return 100.0 * self.hits / max(self.predicted, 1)

    @property
    def recall(self) -> float:
        return 100.0 * self.hits / max(self.true, 1)

    @property
    def f1(self) -> float:
        return 200.0 * self.hits / max(self.predicted + self.true, 1)


def one_label(label: str) -> list[str]:
    """An output that is one label."""
    return [label]


def split_words(labels: str) -> list[str]:
    """An output with one label per word."""
    return labels.split()


def count_classes(
    outputs: Sequence[str], references: Sequence[str], split: SplitLabels = one_label
) -> list[ClassCounts]:
    """Counts of each class that was predicted or is true, sorted by name."""
    pairs = [pair for row in _pair_labels(outputs, references, split) for pair in row]
    predicted, true = (Counter(side) for side in (zip(*pairs, strict=True) if pairs else ((), ())))
    hits = Counter(a for a, b in pairs if a == b)
    names = sorted({*predicted, *true} - {MISSING})
    return [ClassCounts(name, predicted[name], true[name], hits[name]) for name in names]


def accuracy_items(split: SplitLabels = one_label) -> Callable[[Sequence[str], Sequence[str]], CountedItems]:
    """Correct labels and true labels of each item, for accuracy."""

    def count(outputs: Sequence[str], references: Sequence[str]) -> CountedItems:
        rows = [
            (sum(a == b != MISSING for a, b in row), sum(b != MISSING for _, b in row))
            for row in _pair_labels(outputs, references, split)
        ]
        return count_items(rows, percentage)

    return count


def macro_f1_items(split: SplitLabels = one_label) -> Callable[[Sequence[str], Sequence[str]], CountedItems]:
    """Predicted, true and correct labels of each class in each item, for macro F1, where rare classes count fully."""

    def count(outputs: Sequence[str], references: Sequence[str]) -> CountedItems:
        rows = list(_pair_labels(outputs, references, split))
        names = sorted({label for row in rows for pair in row for label in pair} - {MISSING})
        where = {name: i for i, name in enumerate(names)}
        counts = np.zeros((len(rows), 3, len(names)))
        for i, row in enumerate(rows):
            for predicted, true in row:
                for kind, label in ((0, predicted), (1, true)):
                    if label != MISSING:
                        counts[i, kind, where[label]] += 1
                if predicted == true != MISSING:
                    counts[i, 2, where[true]] += 1
        return count_items(counts, _mean_f1)

    return count


def span_f1_items(outputs: Sequence[str], references: Sequence[str]) -> CountedItems:
    """Correct spans, and predicted and true spans, of each item, for F1 over all classes."""
    rows = []
    for output, reference in zip(outputs, references, strict=True):
        predicted, true = (Counter(find_spans(text.split())) for text in (output, reference))
        rows.append((2 * (predicted & true).total(), predicted.total() + true.total()))
    return count_items(rows, percentage)


def find_spans(labels: Sequence[str]) -> list[Span]:
    """The spans in a sequence of labels: class, first position and the one after the last.

    B-x begins a span, I-x continues it (or begins one if there is none), O is no span, any other label is a span by itself.
    """
    found, begun = list[Span](), None
    for i, label in enumerate([*labels, "O"]):
        mark, _, name = label.partition("-")
        if begun is not None and (mark != "I" or name != begun[0]):
            found.append((*begun, i))
            begun = None
        if mark in ("B", "I") and name:
            begun = begun or (name, i)
        elif label != "O":
            found.append((label, i, i + 1))
    return found


def _mean_f1(sums: NDArray[np.float64]) -> float:
    predicted, true, hits = sums.reshape(3, -1)
    seen = predicted + true > 0
    return float((200.0 * hits[seen] / (predicted + true)[seen]).mean()) if seen.any() else 0.0


def _pair_labels(
    outputs: Sequence[str], references: Sequence[str], split: SplitLabels
) -> Iterator[list[tuple[str, str]]]:
    """For each item its predicted and true labels, one by one; MISSING where one side has fewer."""
    for output, reference in zip(outputs, references, strict=True):
        yield list(zip_longest(split(output), split(reference), fillvalue=MISSING))
