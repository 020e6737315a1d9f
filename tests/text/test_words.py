"""Where tokens join into words, whatever the vocabulary."""

from __future__ import annotations

import numpy as np
import pytest

from regard.text import Bpe, ByteBpe, Chars, Pieces, Tokenizer, TokenizerSpec, Unigram, WordPiece
from regard.text.words import WordBoundaries

TEXT = "the philammon sat, on the mat. 1,50 is a dog's"
WORDS = ["the", "philammon", "sat", ",", "on", "the", "mat", ".", "1", ",", "50", "is", "a", "dog", "'", "s"]


@pytest.mark.parametrize(
    "kind",
    [Chars(), Bpe(vocab=40), ByteBpe(vocab=280), Unigram(vocab=40), WordPiece(vocab=60)],
    ids=lambda k: type(k).__name__,
)
def test_words_are_runs_of_letters_and_single_marks(kind: TokenizerSpec) -> None:
    tokenizer = Tokenizer.train([TEXT], kind)
    ids = np.array(tokenizer.encode(TEXT))
    joined = WordBoundaries(tokenizer).continues_word(ids)
    assert not joined[0]
    words = [tokenizer.decode(part) for part in np.split(ids, np.flatnonzero(~joined)[1:])]
    assert [word.strip() for word in words if word.strip()] == WORDS


def test_text_that_is_cut_already() -> None:
    tokenizer = Tokenizer.train(["phil@@ am@@ mon sat ."], Pieces())
    assert WordBoundaries(tokenizer).continues_word(np.array(tokenizer.encode("phil@@ am@@ mon sat ."))).tolist() == [
        False, True, True, False, False,
    ]  # fmt: skip
