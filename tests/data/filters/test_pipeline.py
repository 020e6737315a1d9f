"""Filters in a row: laws that hold for each of them, what is counted, and that nothing is held back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import count, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.corpus_stats import describe_corpus
from regard.data.filters import FilterSpec, Identity, Length, Pair, Ratio, pipeline
from regard.data.filters.duplicates import Duplicates, NearDuplicates
from regard.data.filters.pipeline import STANDARD, FilterPipeline, preview_filters
from regard.data.pairs import Dropped, Pairs, shorten
from regard.laws.case import describe
from tests.laws.examples import FILTER

EACH = [part for row in FILTER.values() for part in row]
TEXT = st.text("abcXYZ äжя世 .,!?12", min_size=1, max_size=30)
ROWS = st.lists(st.tuples(TEXT, TEXT) | st.sampled_from([("a b", "c d"), ("x", "X")]), max_size=40).map(
    lambda pairs: list(enumerate(pairs, 1))
)
Rows = list[tuple[int, Pair]]


@pytest.mark.parametrize("part", EACH, ids=describe)
@given(rows=ROWS)
def test_what_stays_is_in_order_whole_and_stays_again(part: FilterSpec, rows: Rows) -> None:
    sample = [pair for _, pair in rows]
    step = FilterPipeline([part])
    once = list(step(rows))
    there = iter(rows)
    assert all(row in there for row in once)  # a subsequence: nothing moved, no pair was split or mixed
    assert len(once) + step.dropped[0].count == len(rows)
    again = part.build(sample)
    assert all(again.keeps(*pair) for _, pair in once)


@given(rows=ROWS, filters=st.lists(st.sampled_from(EACH), max_size=5))
def test_a_pair_is_counted_by_the_first_filter_that_drops_it(rows: Rows, filters: list[FilterSpec]) -> None:
    whole = FilterPipeline(filters)
    kept = list(whole(rows))
    sample, left, counts = [pair for _, pair in rows], rows, []
    for each in filters:
        judge = each.build(sample)
        passed = [row for row in left if judge.keeps(*row[1])]
        counts.append(len(left) - len(passed))
        left = passed
    assert kept == left
    assert [each.count for each in whole.dropped] == counts


def test_examples_are_kept_with_their_lines() -> None:
    rows = [(n, (f"text {n} " * 9, "x" if n % 2 else "y  z")) for n in range(1, 9)]
    step = FilterPipeline([Length(1, unit="characters")])
    assert list(step(rows)) == []
    (dropped,) = step.dropped
    assert (dropped.count, len(dropped.examples)) == (8, 3)
    assert dropped.examples[1] == f"line 2: {('text 2 ' * 9)[:59]}… ||| y z"
    assert str(dropped) == f"8 dropped: length, max 1, unit characters, such as {dropped.examples[0]}"
    assert str(Dropped("ratio", remark="one to one")) == "0 dropped: ratio (one to one)"
    assert shorten("a\u2028b\tc" + "d" * 10**6, 9) == "a b cddd…"


def endless() -> Iterator[tuple[int, Pair]]:
    return ((n, (f"a b {n}", f"c d {n}")) for n in count(1))


def test_a_stream_without_end_is_filtered_as_it_comes() -> None:
    assert [line for line, _ in islice(FilterPipeline([Length(), Identity(), Duplicates()])(endless()), 3)] == [1, 2, 3]
    assert next(FilterPipeline(STANDARD)(endless()))[0] == 1


def test_what_is_learned_from_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = 0

    def counted(text: str) -> Iterator[tuple[int, Pair]]:
        nonlocal taken
        for line in count(1):
            taken = line
            yield line, (text, text)

    next(FilterPipeline([Ratio()])(counted("describe")))
    assert taken == pipeline.SAMPLE
    monkeypatch.setattr(pipeline, "SAMPLE_CHARACTERS", 1000)
    next(FilterPipeline([Ratio()])(counted("long" * 25)))
    assert taken == 5


def test_what_the_usual_filters_would_drop_is_told() -> None:
    words = "one two three four five six seven eight nine ten".split()  # noqa: SIM905
    source = [" ".join(words[int(d)] for d in str(n * 37)) for n in range(100, 200)]
    target = [text.translate(str.maketrans("aeiou", "uoiea")) for text in source]
    looked, dropped = preview_filters(source, target)
    assert (looked, sum(each.count for each in dropped)) == (100, 0)
    assert describe_corpus(Pairs(source, target), offer=True).facts == ()
    source, target = [*source, source[0], source[1].upper()], [*target, target[0], target[1] + "!"]
    (fact,) = describe_corpus(Pairs(source, target), offer=True).facts
    assert fact == (
        "the standard filters would drop 2 of 102 sampled pairs (1 duplicates; 1 near_duplicates); "
        "enable them with --set data.filters=standard"
    )


def test_of_many_pairs_some_from_all_over_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "SAMPLE", 10)
    monkeypatch.setattr(pipeline, "STANDARD", (Identity(),))
    looked, (dropped,) = preview_filters([str(n) for n in range(25)], [str(n) for n in range(25)])
    assert (looked, dropped.count, dropped.examples[:2]) == (9, 9, ["line 1: 0 ||| 0", "line 4: 3 ||| 3"])


def test_every_kind_of_filter_is_usual() -> None:
    assert Counter(type(each) for each in STANDARD).keys() == {type(part) for part in EACH}
    assert STANDARD[-2:] == (Duplicates(), NearDuplicates())
