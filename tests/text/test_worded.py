"""Tokens and the words they belong to, for texts that are read and for tokens that were written."""

from __future__ import annotations

import random
import re
from itertools import pairwise, takewhile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.text import Bpe, ByteBpe, Bytes, Chars, Pieces, Tokenizer, Unigram, WordPiece, Words
from regard.text.word_ids import encode_inside, group_tokens, tokenize_words

LINES = ["the house boat, the boat house", "a houseboat isn't new.", "日本 はい the thehouse é"] * 4
KINDS = {
    "chars": Chars(),
    "bytes": Bytes(),
    "bpe": Bpe(vocab=60),
    "byte_bpe": ByteBpe(vocab=300),
    "unigram": Unigram(vocab=50),
    "words": Words(min_count=1),
    "wordpiece": WordPiece(vocab=70),
}
TOKENIZERS = {kind: Tokenizer.train(LINES, spec) for kind, spec in KINDS.items()}


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_each_token_belongs_to_the_word_it_is_in(kind: str) -> None:
    tokenizer, text = TOKENIZERS[kind], "the  boat, isn't new."
    (read,) = tokenize_words(tokenizer, [text])
    assert read.words == ["the", "boat,", "isn't", "new."] == text.split()
    assert read.ids == tokenizer.encode(text)
    assert read.owner == sorted(read.owner)
    for word, spelled in enumerate(read.words):
        own = [i for i, owner in zip(read.ids, read.owner, strict=True) if owner == word]
        assert tokenizer.decode(own).strip() == spelled


@settings(max_examples=50)
@given(st.text(st.sampled_from("the hous boat, 日é\t\u2028")), st.sampled_from(sorted(KINDS)))
def test_reading_and_writing_agree(text: str, kind: str) -> None:
    tokenizer = TOKENIZERS[kind]
    (read,) = tokenize_words(tokenizer, [text])
    assert len(read.owner) == len(read.ids)
    assert read.words == text.split()
    assert set(read.owner) <= set(range(max(len(read.words), 1)))
    (written,) = group_tokens(tokenizer, [read.ids])
    assert len(written.owner) == len(written.ids)
    assert written.words == tokenizer.decode(read.ids).split()
    if tokenizer.unk not in read.ids:
        assert written == read


@settings(max_examples=50)
@given(st.integers(0, 200), st.integers(0, 10**6), st.sampled_from(sorted(KINDS)))
def test_words_of_long_outputs(count: int, seed: int, kind: str) -> None:
    """Any tokens, special ones and parts of characters included: the words are those of every token decoded with all before."""
    tokenizer, draw = TOKENIZERS[kind], random.Random(seed)
    ids = draw.choices(range(tokenizer.size), k=count)
    text = tokenizer.decode(ids)
    begun = [tokenizer.decode(ids[: i + 1]) for i in range(count)]
    ends = [sum(1 for _ in takewhile(bool, map(str.__eq__, one, text))) for one in begun]
    (written,) = group_tokens(tokenizer, [ids])
    assert (written.ids, written.words) == (ids, text.split())
    starts = [found.end() for found in re.finditer(r"\S+", text)]
    wanted = [
        min(sum(end <= max(a, b - 1) for end in starts), max(len(starts) - 1, 0)) for a, b in pairwise([0, *ends])
    ]
    assert written.owner == wanted


def test_a_word_that_was_written_in_pieces_of_its_own() -> None:
    bpe = TOKENIZERS["bpe"]
    ids = [bpe.encode("the")[0], *(bpe.core.token_to_id(c) for c in "house"), bpe.encode("boat")[0]]
    (written,) = group_tokens(bpe, [ids])
    assert written.words == ["thehouse", "boat"]
    assert written.owner == [0] * 6 + [1]
    cut = Tokenizer.train(["wor@@ ld a"], Pieces())
    (written,) = group_tokens(cut, [cut.encode("a wor@@ ld a")])
    assert (written.words, written.owner) == (["a", "world", "a"], [0, 1, 1, 2])


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("term", ["house", "boat house", "new."])
def test_a_term_within_a_text(kind: str, term: str) -> None:
    tokenizer = TOKENIZERS[kind]
    ids = encode_inside(tokenizer, term)
    whole = tokenizer.encode(f"the {term}")
    assert whole[-len(ids) :] == ids
    assert tokenizer.decode([*tokenizer.encode("the"), *ids]).removeprefix("the").strip() == term
