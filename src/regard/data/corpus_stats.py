"""Statistics of a corpus, and warnings about likely mistakes.

All numbers are exact. Warnings are given only for what is rarely intended: the same file twice, misaligned lines, validation
pairs that are also trained on, swapped sides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice
from operator import eq

import numpy as np
from numpy.typing import NDArray

from regard.data.filters.pipeline import preview_filters
from regard.data.pairs import Dropped, Pairs

MAX_LONG_TEXTS = 3
"""Maximum number of longest texts in a report."""
MIN_CORRELATED = 200
"""Minimum number of pairs for a meaningful correlation of lengths."""
MAX_SAMPLE = 2000
"""Maximum number of texts from which the words of a side are collected."""
MIN_SWAPPED = 20
"""Minimum number of words that both sides share with the opposite side of the training data to be certainly swapped."""


@dataclass(frozen=True)
class LongText:
    """A long text: the number of its pair (from 1), its length in characters, and its beginning."""

    pair: int
    characters: int
    start: str


@dataclass(frozen=True)
class LengthStats:
    """Lengths of all texts of one side, in characters."""

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
    """Statistics of a corpus; `facts` are findings that the user should look at."""

    name: str
    pairs: int
    dropped: tuple[Dropped, ...]
    source: LengthStats
    target: LengthStats
    identical: float
    """Share of pairs with the same text on both sides."""
    duplicates: int
    """Number of pairs that repeat an earlier pair."""
    seen: int
    """Number of pairs that are also in the training data (0 if unknown)."""
    swapped: bool
    """True if source and target are certainly swapped with respect to the training data."""
    facts: tuple[str, ...]

    def plain(self) -> dict[str, object]:
        """Return the report as plain data for JSON."""
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """Yield the report as lines of text."""
        yield f"{self.name}: {self.pairs:,} pairs"
        for name, side in (("source", self.source), ("target", self.target)):
            yield (
                f"  {name}: {side.mean:.0f} characters on average, median {side.median:,}, "
                f"95th percentile {side.p95:,}, longest {side.longest:,} (pair {side.longest_texts[0].pair:,})"
            )
        yield from (f"  {each}" for each in self.dropped)
        for fact in self.facts:
            yield f"  note: {fact}"


def describe_corpus(pairs: Pairs, *, train: Sequence[Pairs] = (), offer: bool = False) -> CorpusReport:
    """Describe a corpus; a validation corpus is also compared with the corpora to `train` on.

    offer    whether to report what the standard filters would drop
    """
    hashes = np.fromiter(_hash_pairs(pairs), np.int64, len(pairs))
    identical = sum(map(eq, pairs.source, pairs.target)) / len(pairs)
    duplicates = len(pairs) - len(np.unique(hashes))
    shared = set(hashes.tolist()).intersection(chain.from_iterable(map(_hash_pairs, train)))
    seen = int(np.isin(hashes, list(shared)).sum())
    swapped = min(
        (_count_swapped(pairs, corpus) for corpus in train), default=0
    )  # a model may translate in both directions
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
        yield "source and target are identical in every pair: is the same file given twice?"
    elif identical >= 0.1:
        yield f"source and target are identical in {identical:.0%} of the pairs"
    if duplicates >= 0.1 * n:
        yield f"{duplicates:,} of {n:,} pairs repeat an earlier one"
    if n > 1 and all(text == pairs.target[0] for text in islice(pairs.target, 1, None)):
        yield "all targets are the same text"
    if (together := _correlation(pairs)) is not None and together < 0.1:
        yield (
            f"the lengths of sources and targets do not correlate ({together:.2f}): "
            "normal for labels and summaries; translations may be misaligned"
        )
    if broken := sum("\ufffd" in s or "\ufffd" in t for s, t in zip(pairs.source, pairs.target, strict=True)):
        yield f"{broken:,} pairs contain U+FFFD, a trace of a broken encoding conversion"


def _compare_with_train(pairs: Pairs, seen: int, swapped: int) -> Iterator[str]:
    """Yield findings about a validation corpus compared with the training data."""
    if seen:
        yield f"{seen:,} of {len(pairs):,} pairs are also in the training data: their scores are too good"
    if swapped:
        yield "source and target look swapped: sources use the words of the training targets, and targets those of the sources"


def _suggest_filters(pairs: Pairs) -> Iterator[str]:
    """Yield what the standard filters would drop, if anything."""
    looked, dropped = preview_filters(pairs.source, pairs.target)
    if found := [f"{each.count:,} {each.reason}" for each in dropped if each.count]:
        count = sum(each.count for each in dropped)
        yield (
            f"the standard filters would drop {count:,} of {looked:,} sampled pairs ({'; '.join(found)}); "
            "enable them with --set data.filters=standard"
        )


def _hash_pairs(pairs: Pairs) -> Iterator[int]:
    """Yield a 64-bit hash of each pair; in ten million pairs a collision has a probability of 1 in 300,000."""
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
    """Return the correlation of source and target lengths; None if there are few pairs or all lengths are equal."""
    lengths = np.stack([_lengths(pairs.source), _lengths(pairs.target)])
    if len(pairs) < MIN_CORRELATED or not lengths.std(axis=1).all():
        return None
    return float(np.corrcoef(lengths[0], lengths[1])[0, 1])


def _count_swapped(pairs: Pairs, train: Pairs) -> int:
    """Count the words each side shares with the opposite side of `train`, if twice as many as with the same side; else 0."""
    source, target = _words(pairs.source), _words(pairs.target)
    own, other = _words(train.source), _words(train.target)
    straight = len(source & own), len(target & other)
    across = len(source & other), len(target & own)
    return min(across) if all(a > 2 * b for a, b in zip(across, straight, strict=True)) else 0


def _words(texts: Sequence[str]) -> set[str]:
    return {word for text in islice(texts, MAX_SAMPLE) for word in text.split()}
