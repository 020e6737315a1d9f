"""Pairs are set aside whole and drawn in their order, and known by what they say."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from regard.data.line_store import LineWriter
from regard.data.pairs import Dropped, Pairs, fingerprint, sample_pairs, split_pairs
from regard.errors import DataError

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\t\r\n"), min_size=1).filter(str.strip)
PAIRS = st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=8)


def test_pairs_go_in_step() -> None:
    with pytest.raises(DataError, match="odd has 2 sources and 1 targets"):
        Pairs(["a", "b"], ["A"], name="odd")


def numbers(n: int, copies: int = 1) -> Pairs:
    texts = [str(i) for i in range(n)] * copies
    return Pairs(texts, [t + "!" for t in texts], tag="2de", weight=2.0, dropped=(Dropped("a NUL", 3),))


@pytest.mark.parametrize(("n", "size"), [(2, 1), (39, 1), (400, 20), (30000, 1000)])
def test_split_sets_a_twentieth_aside_but_not_too_much(n: int, size: int) -> None:
    train, valid = split_pairs(numbers(n))
    assert (len(train), len(valid)) == (n - size, size)
    assert sorted(train.source + valid.source) == sorted(numbers(n).source)
    assert train.source == sorted(train.source, key=int)  # in the order they came
    assert all(t == s + "!" for s, t in zip(valid.source, valid.target, strict=True))
    assert (train.tag, train.weight) == (valid.tag, valid.weight) == ("2de", 2.0)
    assert (valid.name, valid.dropped, train.dropped) == ("pairs, held out", (), (Dropped("a NUL", 3),))


@given(PAIRS, st.integers(0, 9), st.data())
def test_copies_of_a_pair_stay_on_one_side(rows: list[tuple[str, str]], seed: int, data: st.DataObject) -> None:
    rows = [*rows, ("other", "pair"), *data.draw(st.lists(st.sampled_from(rows), max_size=8))]
    assume(len(set(rows)) > 1)
    pairs = Pairs([s for s, _ in rows], [t for _, t in rows])
    train, valid = split_pairs(pairs, size=data.draw(st.integers(1, len(rows) - 1)), seed=seed)
    assert train.source and valid.source and len(train) + len(valid) == len(pairs)
    sides = [set(zip(part.source, part.target, strict=True)) for part in (train, valid)]
    assert not sides[0] & sides[1]


def test_split_hardly_moves_when_lines_are_added_and_moves_with_the_seed() -> None:
    assert split_pairs(numbers(40))[1].source == ["25", "27"]  # the same on every machine
    before = set(split_pairs(numbers(1000), size=50)[1].source)
    more = numbers(1010)
    shuffled = Pairs(more.source[::-1], more.target[::-1])
    assert len(before & set(split_pairs(shuffled, size=50)[1].source)) >= 45
    assert len(before & set(split_pairs(numbers(1000), size=50, seed=1)[1].source)) < 20


def test_split_of_what_cannot_be_split() -> None:
    with pytest.raises(DataError, match="cannot hold out 1 of the 1 pairs of pairs for validation"):
        split_pairs(numbers(1))
    with pytest.raises(DataError, match="cannot hold out 5 of the 5 pairs"):
        split_pairs(numbers(5), size=5)
    with pytest.raises(DataError, match="all 30 pairs of pairs are identical: none can be held out"):
        split_pairs(numbers(1, copies=30))
    assert len(split_pairs(numbers(2, copies=30))[1]) == 30  # more than asked for, but copies stay together


def test_a_fingerprint_tells_every_change_and_no_renaming() -> None:
    base = Pairs(["a", "bc"], ["A", "B"])
    changed = [
        Pairs(["ab", "c"], ["A", "B"]),
        Pairs(["a", "bc"], ["B", "A"]),
        Pairs(["bc", "a"], ["B", "A"]),
        Pairs(["a"], ["A"]),
        Pairs(["A", "B"], ["a", "bc"]),
        Pairs(["a", "bc"], ["A", "B"], tag="2de"),
        Pairs(["a", "bc"], ["A", "B"], weight=2),
    ]
    prints = {fingerprint(pairs) for pairs in [base, *changed]} | {fingerprint(base, base), fingerprint()}
    assert len(prints) == len(changed) + 3
    assert fingerprint(base) == fingerprint(
        Pairs(["a", "bc"], ["A", "B"], weight=1, name="moved", dropped=(Dropped("x", 2),))
    )
    assert fingerprint(base) == "b1349ca45de19641a5c9a5d0b77a854ae0ed20678e638ec8a90bd6f2cee11954"


def test_a_sample_takes_of_every_corpus_its_share_in_order() -> None:
    corpora = [numbers(100), numbers(900)]
    some = sample_pairs(corpora, 50)
    assert [len(pairs) for pairs in some] == [5, 45]
    assert some == sample_pairs(corpora, 50)
    for pairs in some:
        assert list(pairs.source) == sorted(pairs.source, key=int)
        assert all(t == s + "!" for s, t in zip(pairs.source, pairs.target, strict=True))
    assert sample_pairs(corpora, 1000) is corpora
    assert [len(pairs) for pairs in sample_pairs([numbers(1), numbers(999)], 10)] == [1, 9]


@given(PAIRS, st.integers(0, 9))
def test_texts_in_a_scratch_file_are_split_and_known_as_those_in_memory(rows: list[tuple[str, str]], seed: int) -> None:
    def kept(texts: list[str], room: int) -> Sequence[str]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("regard.data.line_store.ROOM", room)
            pile = LineWriter()
        for text in texts:
            pile.add(text)
        return pile.lines()

    rows = [*rows, ("other", "pair")]
    assume(len(set(rows)) > 1)
    here, there = (Pairs(*(kept([row[side] for row in rows], room) for side in (0, 1))) for room in (1 << 20, 0))
    assert isinstance(here.source, list) and not isinstance(there.source, list)
    for one, other in zip((here, *split_pairs(here, seed=seed)), (there, *split_pairs(there, seed=seed)), strict=True):
        assert fingerprint(one) == fingerprint(other)
        assert (list(one.source), list(one.target)) == (list(other.source), list(other.target))
