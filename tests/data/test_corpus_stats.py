"""The report on a corpus: right numbers, and words only where something is likely wrong."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.corpus_stats import describe_corpus
from regard.data.pairs import Dropped, Pairs

WORDS = "one two three four five six seven eight nine ten".split()  # noqa: SIM905
WÖRTER = "eins zwei drei vier fünf sechs sieben acht neun zehn".split()  # noqa: SIM905


def counting(start: int, stop: int) -> Pairs:
    """Numbers said digit by digit in two languages: lengths go together, no pair is twice there."""

    def say(words: list[str], n: int) -> str:
        return " ".join(words[int(digit)] for digit in f"{n:b}" + f"{n}")

    return Pairs(
        [say(WORDS, n) for n in range(start, stop)], [say(WÖRTER, n) for n in range(start, stop)], name="numbers"
    )


@given(st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9)), min_size=1, max_size=30))
def test_numbers_are_those_of_a_plain_count(rows: list[tuple[str, str]]) -> None:
    report = describe_corpus(Pairs([s for s, _ in rows], [t for _, t in rows]))
    assert report.pairs == len(rows)
    assert report.duplicates == sum(row in rows[:i] for i, row in enumerate(rows))
    assert report.identical == sum(s == t for s, t in rows) / len(rows)
    for side, texts in ((report.source, [s for s, _ in rows]), (report.target, [t for _, t in rows])):
        lengths = sorted(map(len, texts))
        assert (side.characters, side.shortest, side.longest) == (sum(lengths), lengths[0], lengths[-1])
        assert side.mean == pytest.approx(sum(lengths) / len(lengths))
        assert sum(length <= side.median for length in lengths) >= len(lengths) / 2
        assert all(a <= b for a, b in pairwise((side.shortest, side.median, side.p95, side.p99, side.longest)))
        assert [text.characters for text in side.longest_texts] == lengths[::-1][:3]
        assert all(texts[text.pair - 1] == text.start for text in side.longest_texts)


def test_a_sound_corpus_gives_no_facts() -> None:
    train, valid = counting(0, 900), counting(900, 1200)
    assert describe_corpus(train).facts == describe_corpus(valid, train=[train]).facts == ()


def test_a_report_is_plain_data_and_lines() -> None:
    report = describe_corpus(
        Pairs(["a", "bbb"], ["same", "same"], name="toy", dropped=(Dropped("a NUL", 2, ["x, line 3: a NUL"]),))
    )
    assert json.loads(json.dumps(report.plain()))["source"]["longest_texts"][0] == {
        "pair": 2,
        "characters": 3,
        "start": "bbb",
    }
    assert list(report.lines()) == [
        "toy: 2 pairs",
        "  source: 2 characters on average, median 1, 95th percentile 3, longest 3 (pair 2)",
        "  target: 4 characters on average, median 4, 95th percentile 4, longest 4 (pair 1)",
        "  2 dropped: a NUL, such as x, line 3: a NUL",
        "  note: all targets are the same text",
    ]


def test_the_same_file_twice() -> None:
    source = counting(0, 20).source
    assert describe_corpus(Pairs(source, source)).facts == (
        "source and target are identical in every pair: is the same file given twice?",
    )
    assert describe_corpus(Pairs(source, [*source[:5], *WORDS, *WÖRTER][:20])).facts == (
        "source and target are identical in 25% of the pairs",
    )


def test_pairs_that_repeat() -> None:
    pairs = counting(0, 10)
    assert describe_corpus(Pairs(pairs.source * 3, pairs.target * 3)).facts == ("20 of 30 pairs repeat an earlier one",)


def test_lines_out_of_step() -> None:
    pairs = counting(0, 1000)
    (fact,) = describe_corpus(Pairs(pairs.source, pairs.target[500:] + pairs.target[:500])).facts
    assert fact.startswith("the lengths of sources and targets do not correlate (-0.")
    assert fact.endswith("translations may be misaligned")


def test_marks_of_a_broken_conversion() -> None:
    assert describe_corpus(Pairs(["caf\ufffd", "b"], ["A", "B\ufffd"])).facts == (
        "2 pairs contain U+FFFD, a trace of a broken encoding conversion",
    )


def test_validation_pairs_that_are_trained_on() -> None:
    report = describe_corpus(counting(890, 900), train=[counting(0, 895)])
    assert (report.seen, report.facts) == (
        5,
        ("5 of 10 pairs are also in the training data: their scores are too good",),
    )


def test_validation_sides_swapped() -> None:
    train, valid = counting(0, 900), counting(900, 950)
    assert describe_corpus(Pairs(valid.target, valid.source), train=[train]).facts == (
        "source and target look swapped: sources use the words of the training targets, and targets those of the sources",
    )
