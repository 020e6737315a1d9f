"""Which token stands for which word or letter."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DataError
from regard.text import Bpe, ByteBpe, Chars, Tokenizer, TokenizerSpec, Unigram, WordPiece, Words
from regard.text.word_ids import align_words

LINES = ["the cat sat on the mat", "a catalogue of mats, and of cats", "sitting on mats"] * 3
SPECS: list[TokenizerSpec] = [Chars(), Words(), Bpe(60), ByteBpe(300), Unigram(60), WordPiece(60)]
TOKENIZERS = [Tokenizer.train(LINES, spec) for spec in SPECS]


def words(text: str) -> list[tuple[int, int]]:
    return [found.span() for found in re.finditer(r"\S+", text)]


@pytest.mark.parametrize("tokenizer", TOKENIZERS, ids=[type(s).__name__ for s in SPECS])
@given(st.lists(st.sampled_from(["the", "cat", "mats,", "catalogue", "zebra", "é", "\u200b", "..."]), max_size=6))
def test_every_word_has_a_token_of_its_own(tokenizer: Tokenizer, found: list[str]) -> None:
    text = " ".join(found)
    ((ids, first),) = align_words(tokenizer, [text], [words(text)])
    assert len(first) == len(text.split())
    assert first == sorted(set(first)) and all(0 <= i < len(ids) for i in first)
    if "\u200b" not in text:
        assert ids == tokenizer.encode(text), "nothing is added where every word has a token"


def test_the_first_token_of_a_word_begins_it() -> None:
    text = "a catalogue of mats"
    for tokenizer in TOKENIZERS[2:]:
        ((ids, first),) = align_words(tokenizer, [text], [words(text)])
        ends = [*first[1:], len(ids)]
        for word, start, end in zip(text.split(), first, ends, strict=True):
            assert tokenizer.decode(ids[start:end]).strip().removeprefix("##") == word


def test_letters() -> None:
    ((ids, first),) = align_words(TOKENIZERS[0], ["cat"], [[(0, 1), (1, 2), (2, 3)]])
    assert (len(ids), first) == (3, [0, 1, 2])


def test_a_token_of_several_letters_is_refused() -> None:
    with pytest.raises(DataError, match=r"a token contains '.*cat', which has several labels; use tokenizer: chars"):
        align_words(TOKENIZERS[1], ["cat"], [[(0, 1), (1, 2), (2, 3)]])
