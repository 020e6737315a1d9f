"""Scores of classes, from counts of what was said against what is true: accuracy, F1, and a line for each class.

An output is one label, or labels in a row: separated by spaces (a label a word) or not (a label a letter). F1 of a class is
2·hits / (said + true); macro F1 is the mean over the classes that are said or true. Spans are CoNLL's (Tjong Kim Sang 2002):
runs of B-x I-x, right if class and both ends are right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

Units = Callable[[str], list[str]]
Score = Callable[[Sequence[str], Sequence[str]], float]
Span = tuple[str, int, int]
MISSING = ""
"""What stands where one side has fewer labels than the other."""


@dataclass(frozen=True)
class Tally:
    """How often a class was said, was true, and both at once; scores are in per cent."""

    name: str
    said: int
    true: int
    hits: int

    @property
    def precision(self) -> float:
        return 100.0 * self.hits / max(self.said, 1)

    @property
    def recall(self) -> float:
        return 100.0 * self.hits / max(self.true, 1)

    @property
    def f1(self) -> float:
        return 200.0 * self.hits / max(self.said + self.true, 1)


def whole(label: str) -> list[str]:
    return [label]


def words(labels: str) -> list[str]:
    return labels.split()


def tallies(outputs: Sequence[str], references: Sequence[str], units: Units = whole) -> list[Tally]:
    """A tally for each class that was said or is true, in the order of their names."""
    pairs = list(_pairs(outputs, references, units))
    said, true = (Counter(side) for side in (zip(*pairs, strict=True) if pairs else ((), ())))
    hits = Counter(a for a, b in pairs if a == b)
    return [Tally(name, said[name], true[name], hits[name]) for name in sorted({*said, *true} - {MISSING})]


def accuracy(units: Units = whole) -> Score:
    """Per cent of labels that are right."""

    def score(outputs: Sequence[str], references: Sequence[str]) -> float:
        found = tallies(outputs, references, units)
        return 100.0 * sum(t.hits for t in found) / max(sum(t.true for t in found), 1)

    return score


def macro_f1(units: Units = whole) -> Score:
    """The mean of the classes' F1: a rare class counts as much as a common one."""

    def score(outputs: Sequence[str], references: Sequence[str]) -> float:
        found = tallies(outputs, references, units)
        return sum(t.f1 for t in found) / max(len(found), 1)

    return score


def span_f1(outputs: Sequence[str], references: Sequence[str]) -> float:
    """F1 of whole spans, all classes together."""
    said, true = (
        Counter((i, *span) for i, text in enumerate(side) for span in spans(text.split()))
        for side in (outputs, references)
    )
    hits = sum((said & true).values())
    return 200.0 * hits / max(said.total() + true.total(), 1)


def spans(labels: Sequence[str]) -> list[Span]:
    """The spans in a row of labels: class, first place and the one after the last.

    B-x begins one, I-x goes on with it (and begins one where there is none), O is none, any other label is one by itself.
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


def _pairs(outputs: Sequence[str], references: Sequence[str], units: Units) -> Iterator[tuple[str, str]]:
    """What was said and what is true, label by label; where one side has fewer, the rest is missing."""
    for output, reference in zip(outputs, references, strict=True):
        yield from zip_longest(units(output), units(reference), fillvalue=MISSING)
