"""A pipeline of filters over a stream of pairs.

Pairs that pass all filters are kept in order; the others are counted by the first filter that drops them. If a filter needs a
sample, the first pairs are buffered; nothing else is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Annotated

from pydantic import BeforeValidator

from regard.data.filters.duplicates import Duplicates, NearDuplicates
from regard.data.filters.filter_spec import FilterSpec, Pair
from regard.data.filters.language_id import Language
from regard.data.filters.length import Identity, Length, Ratio
from regard.data.filters.unicode_script import Script
from regard.data.pairs import Dropped, shorten
from regard.errors import SpecError

STANDARD: tuple[FilterSpec, ...] = (
    Length(200),
    Length(2000, unit="characters"),
    Ratio(),
    Identity(),
    Script(),
    Language(),
    Duplicates(),
    NearDuplicates(),
)
"""The filters of `filters: standard`; a saved recipe lists them in full."""
SAMPLE, SAMPLE_CHARACTERS = 4000, 1 << 22
"""Size of the sample that filters learn from: maximum number of pairs, and approximate number of characters."""

FilterList = Annotated[
    tuple[FilterSpec, ...],
    BeforeValidator(lambda value: _expand(value) if isinstance(value, str) else value),
]
"""In a recipe: a list of filters, or the word `standard`."""


def _expand(word: str) -> tuple[FilterSpec, ...]:
    if word != "standard":
        raise SpecError(f"should be the word standard, or a list such as [length, ratio], got {word!r}")
    return STANDARD


class FilterPipeline:
    """Filters, and what each of them has dropped so far."""

    def __init__(self, filters: Sequence[FilterSpec]) -> None:
        self._filters = filters
        self.dropped = tuple(Dropped(each.name) for each in filters)

    def __call__(self, rows: Iterable[tuple[int, Pair]]) -> Iterator[tuple[int, Pair]]:
        """Yield the numbered pairs that pass all filters."""
        rows, sample = iter(rows), list[tuple[int, Pair]]()
        if any(each.needs_sample for each in self._filters):
            sample = list(_take_sample(rows))
        seen = [pair for _, pair in sample]
        steps = [(each.build(seen), into) for each, into in zip(self._filters, self.dropped, strict=True)]
        for judge, into in steps:
            into.remark = judge.remark
        for line, pair in chain(sample, rows):
            for judge, into in steps:
                if not judge.keeps(*pair):
                    into.add(f"line {line}: {' ||| '.join(map(shorten, pair))}")
                    break
            else:
                yield line, pair


def preview_filters(sources: Sequence[str], targets: Sequence[str]) -> tuple[int, tuple[Dropped, ...]]:
    """Return what the standard filters would drop from an even sample of these pairs, and the size of the sample."""
    step = -(-len(sources) // SAMPLE)
    rows = list(enumerate(zip(sources[::step], targets[::step], strict=True)))
    sieve = FilterPipeline(STANDARD)
    for _ in sieve((1 + i * step, pair) for i, pair in rows):
        pass
    return len(rows), sieve.dropped


def _take_sample(rows: Iterator[tuple[int, Pair]]) -> Iterator[tuple[int, Pair]]:
    """Yield enough rows for filters to learn from."""
    room = SAMPLE_CHARACTERS
    for count, row in enumerate(rows, 1):
        yield row
        room -= len(row[1][0]) + len(row[1][1])
        if count == SAMPLE or room <= 0:
            return
