"""Which script a text is in, and pairs whose sides are in another one than theirs."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.filters.unicode_script import Script, count_scripts, script_of
from tests.data.filters.test_filters import kept


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("straße", "latin"), ("Ａ", "latin"), ("привіт", "cyrillic"), ("γλώσσα", "greek"), ("שלום", "hebrew"),
        ("مرحبا", "arabic"), ("नमस्ते", "devanagari"), ("สวัสดี", "thai"), ("世界", "cjk"), ("ひらがなカタカナー々ﾊﾝ", "cjk"),
        ("안녕", "hangul"), ("𠀀", "cjk"), ("բարեւ", "armenian"),
    ],
)  # fmt: skip
def test_the_script_of_letters(text: str, script: str) -> None:
    assert set(count_scripts(text)) == {script}


@given(st.characters())
def test_only_letters_have_a_script(character: str) -> None:
    assert bool(script_of(character)) == unicodedata.category(character).startswith("L")


def test_what_most_texts_are_written_in_is_expected() -> None:
    pairs = (
        ("one", "один"),
        ("two", "два"),
        ("three", "three"),
        ("четыре", "четыре"),
        ("5", "5!"),
        ("go BBC", "Би-би-си BBC"),
    )
    assert kept(Script(), *pairs) == [True, True, False, False, True, True]
    assert Script().build(pairs).remark == "source latin and target cyrillic"
    assert kept(Script(min_share=0.9), *pairs)[-1] is False


def test_scripts_can_be_stated() -> None:
    serbian = Script(target=("latin", "cyrillic"))
    assert kept(serbian, ("one", "jedan"), ("two", "два"), ("three", "τρία")) == [True, True, False]
    assert kept(Script(), ("1", "2"), ("3", "4")) == [True, True]
    assert Script().build([("1", "2")]).remark == "source any and target any"
