"""Filters that count: lengths, their ratio, texts that were not translated; and how a recipe names them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.filters import FilterSpec, Identity, Length, Pair, Ratio
from regard.data.filters.pipeline import STANDARD
from regard.errors import SpecError
from regard.tasks.translate import TranslateData


def kept(filter: FilterSpec, *pairs: Pair, sample: list[Pair] | None = None) -> list[bool]:
    judge = filter.build(list(pairs) if sample is None else sample)
    return [judge.keeps(*pair) for pair in pairs]


def test_length_in_words_and_in_characters() -> None:
    assert kept(Length(2), ("a b", "c"), ("a", "b c d"), (" a  b ", "c"), ("a\u3000b c", "d")) == [
        True,
        False,
        True,
        False,
    ]
    assert kept(Length(3, 2, "characters"), ("ab", "abc"), ("a", "ab"), ("abcd", "ab"), ("世界", "世界中")) == [
        True,
        False,
        False,
        True,
    ]


def test_ratio_is_beyond_what_is_usual_for_the_corpus() -> None:
    """Chinese takes a third of the characters: three to one is then nothing to wonder about, one to one is."""
    usual = [("x" * 3 * n, "字" * n) for n in range(10, 30)]
    judge = Ratio(2).build(usual)
    assert judge.remark == "0.33 characters of target for one of source"
    assert judge.keeps("x" * 60, "字" * 20) and judge.keeps("x" * 60, "字" * 39)
    assert not judge.keeps("x" * 60, "字" * 41) and not judge.keeps("x" * 60, "字" * 9)
    assert not Ratio(2, typical=1).build(usual).keeps("x" * 60, "字" * 20)


def test_ratio_does_not_judge_short_texts() -> None:
    assert kept(Ratio(typical=1), ("Ja", "I think so, yes"), ("Ja", "I think so, yes, I do")) == [True, False]
    assert kept(Ratio(typical=1, exempt_length=0), ("Ja", "I think so, yes")) == [False]


@given(st.text(min_size=1), st.text(min_size=1), st.floats(1.1, 9))
def test_ratio_does_not_mind_which_side_is_which(one: str, other: str, most: float) -> None:
    judge = Ratio(most, typical=1).build([])
    assert judge.keeps(one, other) == judge.keeps(other, one)


def test_identity_looks_past_case_and_outer_spaces() -> None:
    assert kept(Identity(), ("Berlin", " BERLIN "), ("Straße", "STRASSE"), ("a b", "ab")) == [False, False, True]


def test_a_recipe_lists_filters_or_says_usual() -> None:
    data = TranslateData.parse({"filters": [{"kind": "length", "max": 80}, "identity", {"kind": "ratio", "max": 2}]})
    assert data.filters == (Length(80), Identity(), Ratio(2))
    usual = TranslateData.parse({"filters": "standard"})
    assert usual.filters == STANDARD
    assert TranslateData.parse(usual.plain()) == usual
    assert TranslateData().filters == ()


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        (["lenght"], "filters.0: no filter 'lenght'; did you mean 'length'?"),
        (["length", {"kind": "ratio", "max": 1}], "filters.1: max: input should be greater than 1, got 1"),
        ([{"kind": "length", "min": 9, "max": 5}], "no text has at least 9 and at most 5 words"),
        ([{"kind": "near_duplicates", "by": "both"}], "by: input should be 'pair', 'source' or 'target', got 'both'"),
        ([{"kind": "script", "source": ["latn"]}], "no script 'latn'; did you mean 'latin'?"),
        ("all", "filters: should be the word standard, or a list such as [length, ratio], got 'all'"),
    ],
)
def test_filters_that_cannot_be(filters: object, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        TranslateData.parse({"filters": filters})
    assert message in str(caught.value)


def test_a_filter_is_named_by_what_was_set() -> None:
    assert [each.name for each in (Length(), Length(80), Ratio(2.0))] == [
        "length",
        "length, max 80",
        "ratio, max 2.0",
    ]
