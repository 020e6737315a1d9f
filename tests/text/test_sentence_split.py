"""Texts in pieces: nothing lost, nothing too long, cut where it hurts least."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.text import Bpe, Bytes, Chars, Normalize, Tokenizer, Unigram, Words
from regard.text.sentence_split import split_to_fit

LINES = ["the quick brown fox jumps over the lazy dog.", "Is it so? 日本語。 Yes, it is!", "0123456789 ünïcödé"] * 3
TOKENIZERS = {
    "chars": Tokenizer.train(LINES, Chars()),
    "bytes": Tokenizer.train(LINES, Bytes()),
    "bpe": Tokenizer.train(LINES, Bpe(vocab=80)),
    "unigram": Tokenizer.train(LINES, Unigram(vocab=60)),
    "words": Tokenizer.train(LINES, Words(min_count=1)),
    "nfkc": Tokenizer.train(LINES, Bytes(normalize=Normalize(unicode="nfkc"))),
}
texts = st.text(st.sampled_from("abc the.!?。…  \t\r\u2028é\u0301日🙂\ufdfa\0")) | st.text()


@settings(max_examples=30)
@given(texts, st.sampled_from(sorted(TOKENIZERS)), st.integers(1, 12))
def test_nothing_is_lost_and_nothing_is_too_long(text: str, kind: str, room: int) -> None:
    tokenizer = TOKENIZERS[kind]
    found = list(split_to_fit(tokenizer, text, room))
    assert "".join("".join(found).split()) == "".join(text.split())
    for piece in found:
        assert piece.strip()
        assert len(tokenizer.encode(piece)) <= room or len(piece) == 1


@pytest.mark.parametrize(
    ("room", "wanted"),
    [
        (30, ["One two.", "Three four five!", "Six?", "七。", "Eight"]),
        (15, ["One two.", "Three four", "five!", "Six?", "七。", "Eight"]),
        (5, ["One", "two.", "Three", "four", "five!", "Six?", "七。", "Eight"]),
        (3, ["One", "two", ".", "Thr", "ee", "fou", "r", "fiv", "e!", "Six", "?", "七。", "Eig", "ht"]),
    ],
)
def test_sentences_then_words_then_letters(room: int, wanted: list[str]) -> None:
    text = "One two. Three four five! Six? 七。Eight"
    assert list(split_to_fit(Tokenizer.train([text], Chars()), text, room)) == wanted


def test_lines_of_a_hundred_kilobytes() -> None:
    tokenizer = TOKENIZERS["bpe"]
    for text in ("the quick brown fox. " * 5_000, "the " * 25_000, "x" * 100_000):
        found = list(split_to_fit(tokenizer, text, 64))
        assert "".join("".join(found).split()) == "".join(text.split())
