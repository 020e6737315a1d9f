from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.pronunciation import assign_split, merge_dictionaries, read_dictionary
from regard.errors import DataError

TEXT = """;;; an older kind of comment
# a newer one
tomato T AH0 M EY1 T OW2
tomato(2) T AH0 M AA1 T OW2 # the other one

tomato(3) T AH1 M EY2 T OW0
'em AH0 M
b(2)c B S IY1
"""
CMUDICT = Path(__file__).resolve().parents[3] / "shared" / "data" / "cmudict" / "cmudict.dict.gz"


def written(folder: Path, text: str) -> str:
    path = folder / "words.dict.gz"
    path.write_bytes(gzip.compress(text.encode()))
    return str(path)


def test_variants_comments_and_stress(tmp_path: Path) -> None:
    path = written(tmp_path, TEXT)
    assert read_dictionary(path) == {
        "tomato": ["T AH M EY T OW", "T AH M AA T OW"],  # the third differs in its stress only
        "'em": ["AH M"],
        "b(2)c": ["B S IY"],
    }
    assert read_dictionary(path, stress=True)["tomato"] == [
        "T AH0 M EY1 T OW2",
        "T AH0 M AA1 T OW2",
        "T AH1 M EY2 T OW0",
    ]


def test_several_dictionaries() -> None:
    assert merge_dictionaries([{"a": ["X"], "b": ["Y"]}, {"a": ["Z", "X"]}]) == {"a": ["X", "Z"], "b": ["Y"]}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("cat K AE T\ndog\n", r"words.dict.gz, line 2: should be a word and its phones, got 'dog'$"),
        ("cat K | T\n", r"words.dict.gz, line 1: should be a word and its phones, got 'cat K \| T'$"),
        ("cat # K\n", r"words.dict.gz, line 1: should be a word and its phones, got 'cat # K'$"),
        ("# nothing\n  # nothing\n #\n", r"words.dict.gz contains no words$"),
    ],
)
def test_what_is_no_dictionary(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=why):
        read_dictionary(written(tmp_path, text))


@given(st.text(max_size=12), st.floats(0.01, 0.4), st.floats(0.01, 0.4))
def test_larger_shares_only_take_words_from_training(word: str, valid: float, test: float) -> None:
    """And what is for a test is so whatever else is kept apart."""
    part = assign_split(word, valid=valid, test=test)
    assert (part == "test") is (assign_split(word, valid=0.3, test=test) == "test")
    if part != "train":
        assert assign_split(word, valid=0.49, test=0.49 if part == "test" else test) == part


def test_shares_are_kept() -> None:
    parts = [assign_split(f"word{i}", valid=0.05, test=0.2) for i in range(4000)]
    assert 0.17 < parts.count("test") / 4000 < 0.23
    assert 0.035 < parts.count("valid") / 4000 < 0.065


@pytest.mark.skipif(not CMUDICT.exists(), reason="the shared folder with CMUdict is not there")
def test_the_real_one() -> None:
    words = read_dictionary(str(CMUDICT))
    assert len(words) > 120_000
    assert max(map(len, words.values())) <= 6
    assert {phone for ways in words.values() for way in ways for phone in way.split()} == {
        line.split()[0] for line in (CMUDICT.parent / "cmudict.phones").read_text().splitlines()
    }
