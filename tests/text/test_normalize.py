"""Normalising: what each switch does, and that doing it twice is doing it once."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import SpecError
from regard.text import Normalize

normalizers = st.builds(Normalize, st.sampled_from(["nfc", "nfkc", "none"]), st.booleans(), st.booleans())


@pytest.mark.parametrize(
    ("spec", "text", "wanted"),
    [
        (Normalize(), " a\t b\u2028c\u00a0 ", "a b c"),
        (Normalize(spaces=False), " a\t b\n", " a\t b\n"),
        (Normalize(), "e\u0301 ﬁ Ａ", "é ﬁ Ａ"),
        (Normalize("nfkc"), "e\u0301 ﬁ Ａ", "é fi A"),
        (Normalize("none"), "e\u0301", "e\u0301"),
        (Normalize(lowercase=True), "ÄH\u0331", "ä\u1e96"),
        (Normalize("nfkc", lowercase=True), "ℌ", "h"),
        (Normalize(), "\u2003\n", ""),
    ],
)
def test_what_each_switch_does(spec: Normalize, text: str, wanted: str) -> None:
    assert spec.apply(text) == wanted


@given(st.text(), normalizers)
def test_twice_is_once(text: str, spec: Normalize) -> None:
    once = spec.apply(text)
    assert spec.apply(once) == once


@given(st.text(st.characters(max_codepoint=0x24F)))
def test_the_form_is_pythons(text: str) -> None:
    assert Normalize("nfkc", spaces=False).apply(text) == unicodedata.normalize("NFKC", text)


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(SpecError, match="unicode: input should be 'nfc', 'nfkc' or 'none', got 'nfd'"):
        Normalize("nfd")  # type: ignore[arg-type]
