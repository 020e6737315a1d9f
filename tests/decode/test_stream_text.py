"""Pieces of text from a stream of tokens: together they are the whole text, and they come as early as they can."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.decode.stream_text import stream_text
from regard.text import Bpe, Chars, Tokenizer, TokenizerSpec, Words

LINES = ["the cat sat on the mat, and then?", "a naïve café: 日本語 🙂!", "  two   spaces  ", "well-known 'words'"]
SPECS: dict[str, TokenizerSpec] = {"chars": Chars(), "words": Words(), "bpe": Bpe(vocab=120)}


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    return {name: Tokenizer.train(LINES, spec) for name, spec in SPECS.items()}


@pytest.mark.parametrize("name", SPECS)
@given(data=st.data())
def test_pieces_are_the_text(tokenizers: dict[str, Tokenizer], name: str, data: st.DataObject) -> None:
    tokenizer = tokenizers[name]
    ids = data.draw(st.lists(st.integers(0, tokenizer.size - 1), max_size=20))
    pieces = list(stream_text(ids, tokenizer.decode))
    assert "".join(pieces) == tokenizer.decode(ids)
    assert all(pieces)


def test_a_piece_is_held_back_until_the_next_token_has_left_it_alone() -> None:
    def decode(ids: list[int]) -> str:
        return "".join("ab ,"[i] for i in ids).replace(" ,", ",")

    assert list(stream_text([0, 2, 3, 2, 1], decode)) == ["a", ",", " b"]


def test_a_character_of_several_tokens_comes_whole() -> None:
    def decode(ids: list[int]) -> str:
        return bytes(ids).decode(errors="replace")

    assert list(stream_text("aé🙂b".encode(), decode)) == ["a", "é", "🙂", "b"]
