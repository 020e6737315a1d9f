"""Glossaries: what is found in a text, and what cannot be one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.glossary import Glossary
from regard.errors import DataError

TERMS = Glossary(
    [("house", "Haus"), ("house boat", "Hausboot"), ("boat trip home", "Heimfahrt"), ("IT", "EDV"), ("polish", "polieren"),
     ("Polish", "polnisch"), ("don't", "nicht"), ("naïve", "naiv"), ("हिन्दी", "Hindi")]
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("A house.", ["Haus"]),
        ("HOUSE and House", ["Haus"]),
        ("houses, warehouse", []),
        ("the house  boat", ["Hausboot"]),
        ("a house boat trip home", ["Haus", "Heimfahrt"]),  # the longest first, then what is left
        ("a boat, a house", ["Haus"]),
        ("it is IT", ["EDV"]),
        ("polish the Polish house", ["polieren", "polnisch", "Haus"]),
        ("POLISH", ["polieren"]),
        ("Don't be nai\u0308ve", ["nicht", "naiv"]),
        ("हिन्दी है", ["Hindi"]),
        ("हिन्दीभाषा", []),
        ("", []),
    ],
)
def test_what_is_found(text: str, wanted: list[str]) -> None:
    assert TERMS.find(text) == wanted


@given(st.lists(st.sampled_from(["house", "boat", "trip", "home", ",", "x"]), max_size=9))
def test_spaces_do_not_matter_and_a_name_comes_once(words: list[str]) -> None:
    found = TERMS.find(" ".join(words))
    assert found == TERMS.find("\t \n".join(words)) == TERMS.find(" ".join(words).upper())
    assert len(found) == len(set(found))


def test_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "terms.tsv"
    file.write_bytes("house\tHaus\r\n\n  big cat \t große Katze\nhouse\tHaus\n".encode())
    assert Glossary.load(file).find("A big  cat in the HOUSE") == ["große Katze", "Haus"]


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"house\tHaus\nboat\n", "line 2: should be a term, a tab and its translation, got 'boat'"),
        (b"a\tb\tc\n", "line 1: should be a term, a tab and its translation, got 'a\\\\tb\\\\tc'"),
        (b"house\t\n", "line 1: should be a term, a tab"),
        (b"\tHaus\n", "line 1: should be a term, a tab"),
        (b"house\tHaus\nHouse\tX\nhouse\tBau\n", "line 3: 'house' is 'Bau' here, but 'Haus' in line 1; keep one"),
        (b"\n\n", "terms.tsv has no terms; write a term, a tab"),
        (b"house\tHa\xffus\n", "terms.tsv, line 1"),
    ],
)
def test_what_is_no_glossary(tmp_path: Path, data: bytes, wanted: str) -> None:
    file = tmp_path / "terms.tsv"
    file.write_bytes(data)
    with pytest.raises(DataError, match=wanted):
        Glossary.load(file)
