"""What a corpus looks like, in numbers and in words, before any time is spent on it.

Numbers are exact. Words are said only about what is rarely meant: the same file twice, lines out of step, a validation
part that training sees, sides the wrong way round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice
from operator import eq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.filters.pipeline import preview_filters
from regard.data.pairs import Dropped, Pairs

MAX_LONG_TEXTS = 3
"""How many of the longest texts a report shows."""
MIN_CORRELATED = 200
"""Below this many pairs a correlation of lengths means nothing."""
MAX_SAMPLE = 2000
"""So many texts of a side are enough to tell its words."""
MIN_SWAPPED = 20
"""From so many words on that both sides share with the other side of what is trained on, they are certainly swapped."""


@dataclass(frozen=True)
class LongText:
    """One text: which pair it is in (counted from 1), its length in characters, and how it starts."""

    pair: int
    characters: int
    start: str


@dataclass(frozen=True)
class LengthStats:
    """The lengths of all texts on one side, in characters."""

    characters: int
    mean: float
    shortest: int
    median: int
    p95: int
    p99: int
    longest: int
    longest_texts: tuple[LongText, ...]


@dataclass(frozen=True)
class CorpusReport:
    """What there is to know about some pairs; `facts` are the things somebody should look at."""

    name: str
    pairs: int
    dropped: tuple[Dropped, ...]
    source: LengthStats
    target: LengthStats
    identical: float
    """The part of the pairs that have the same text on both sides."""
    duplicates: int
    """Pairs that repeat an earlier pair."""
    seen: int
    """Pairs that are in the training part as well (0 if that is not known)."""
    swapped: bool
    """Whether source and target are certainly the other way round in the training part."""
    facts: tuple[str, ...]

    def plain(self) -> dict[str, Any]:
        """This report as plain data, ready for JSON."""
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """This report for people to read."""
        yield f"{self.name}: {self.pairs:,} pairs"
        for name, side in (("source", self.source), ("target", self.target)):
            yield (
                f"  {name}: {side.mean:.0f} characters on average, half up to {side.median:,}, "
                f"95 % up to {side.p95:,}, the longest {side.longest:,} (pair {side.longest_texts[0].pair:,})"
            )
        yield from (f"  {each}" for each in self.dropped)
        for fact in self.facts:
            yield f"  note: {fact}"


def describe_corpus(pairs: Pairs, *, train: Sequence[Pairs] = (), offer: bool = False) -> CorpusReport:
    """A report on pairs; for a validation part also how it stands to the corpora to `train` on.

    offer    also say what the standard filters would drop
    """
    hashes = np.fromiter(_hash_pairs(pairs), np.int64, len(pairs))
    identical = sum(map(eq, pairs.source, pairs.target)) / len(pairs)
    duplicates = len(pairs) - len(np.unique(hashes))
    shared = set(hashes.tolist()).intersection(chain.from_iterable(map(_hash_pairs, train)))
    seen = int(np.isin(hashes, list(shared)).sum())
    swapped = min((_count_swapped(pairs, corpus) for corpus in train), default=0)  # a model may go both ways
    facts = [*_describe_pairs(pairs, identical, duplicates), *_compare_with_train(pairs, seen, swapped)]
    return CorpusReport(
        name=pairs.name,
        pairs=len(pairs),
        dropped=pairs.dropped,
        source=_measure_lengths(pairs.source),
        target=_measure_lengths(pairs.target),
        identical=identical,
        duplicates=duplicates,
        seen=seen,
        swapped=swapped >= MIN_SWAPPED,
        facts=(*facts, *(_suggest_filters(pairs) if offer else ())),
    )


def _describe_pairs(pairs: Pairs, identical: float, duplicates: int) -> Iterator[str]:
    n = len(pairs)
    if identical == 1:
        yield "source and target are the same in every pair: is one file given twice?"
    elif identical >= 0.1:
        yield f"source and target are the same in {identical:.0%} of the pairs"
    if duplicates >= 0.1 * n:
        yield f"{duplicates:,} of {n:,} pairs repeat an earlier one"
    if n > 1 and all(text == pairs.target[0] for text in islice(pairs.target, 1, None)):
        yield "every target is the same text"
    if (together := _correlation(pairs)) is not None and together < 0.1:
        yield (
            f"long sources do not have long targets (correlation {together:.2f}): "
            "usual for labels and summaries; for translations the lines may be out of step"
        )
    if broken := sum("\ufffd" in s or "\ufffd" in t for s, t in zip(pairs.source, pairs.target, strict=True)):
        yield f"{broken:,} pairs hold U+FFFD, which a broken conversion leaves behind"


def _compare_with_train(pairs: Pairs, seen: int, swapped: int) -> Iterator[str]:
    """What there is to say of a validation part beside the training part."""
    if seen:
        yield f"{seen:,} of {len(pairs):,} pairs are also trained on: scores on them flatter"
    if swapped:
        yield "source and target look swapped: the sources use the words of the training data's targets, and the reverse"


def _suggest_filters(pairs: Pairs) -> Iterator[str]:
    """What the standard filters would drop, if anything."""
    looked, dropped = preview_filters(pairs.source, pairs.target)
    if found := [f"{each.count:,} {each.reason}" for each in dropped if each.count]:
        count = sum(each.count for each in dropped)
        yield (
            f"the standard filters would drop {count:,} of the {looked:,} pairs looked at ({'; '.join(found)}); "
            "they are switched on by --set data.filters=standard"
        )


def _hash_pairs(pairs: Pairs) -> Iterator[int]:
    """64 bits for each pair: the same for equal pairs, and for others only by a chance of 1 in 300,000 in ten million."""
    return map(hash, zip(pairs.source, pairs.target, strict=True))


def _lengths(texts: Sequence[str]) -> NDArray[np.int64]:
    return np.fromiter(map(len, texts), np.int64, len(texts))


def _measure_lengths(texts: Sequence[str]) -> LengthStats:
    lengths = _lengths(texts)
    longest = np.argsort(-lengths, kind="stable")[:MAX_LONG_TEXTS]
    low, median, p95, p99, high = (int(q) for q in np.quantile(lengths, (0, 0.5, 0.95, 0.99, 1), method="inverted_cdf"))
    shown = tuple(LongText(int(i) + 1, int(lengths[i]), texts[i][:80]) for i in longest)
    return LengthStats(int(lengths.sum()), float(lengths.mean()), low, median, p95, p99, high, shown)


def _correlation(pairs: Pairs) -> float | None:
    """How well lengths go together, from -1 to 1; nothing where there are few or all are equal."""
    lengths = np.stack([_lengths(pairs.source), _lengths(pairs.target)])
    if len(pairs) < MIN_CORRELATED or not lengths.std(axis=1).all():
        return None
    return float(np.corrcoef(lengths[0], lengths[1])[0, 1])


def _count_swapped(pairs: Pairs, train: Pairs) -> int:
    """The words each side shares with the other side of `train`, if they are twice as many as those it shares with its own."""
    source, target = _words(pairs.source), _words(pairs.target)
    own, other = _words(train.source), _words(train.target)
    straight = len(source & own), len(target & other)
    across = len(source & other), len(target & own)
    return min(across) if all(a > 2 * b for a, b in zip(across, straight, strict=True)) else 0


def _words(texts: Sequence[str]) -> set[str]:
    return {word for text in islice(texts, MAX_SAMPLE) for word in text.split()}
