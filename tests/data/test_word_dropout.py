"""Hidden tokens: so many, none that is a mark, each for itself, and the same in a resumed run."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from regard.data.example_rng import ExampleRng, Rng
from regard.data.ragged import Ragged
from regard.data.word_dropout import drop_words
from regard.text import Chars, Tokenizer

TOKENIZER = Tokenizer.train(["abcdefgh"], Chars(), tags=["<2de>"])
ROWS = Ragged.of([[TOKENIZER.tag("<2de>"), *TOKENIZER.encode("abcdefgh" * 4)] for _ in range(300)])


def rng(seed: int = 1, epoch: int = 0, rows: Ragged = ROWS) -> list[Rng]:
    return [ExampleRng(seed, epoch).of(i) for i in range(len(rows))]


def test_a_share_of_the_tokens_is_unknown_and_the_others_are_what_they_were() -> None:
    drawn = drop_words(ROWS, TOKENIZER, 0.1, rng())
    changed = drawn.ids != ROWS.ids
    assert (drawn.ids[changed] == TOKENIZER.unk).all()
    assert np.array_equal(drawn.ends, ROWS.ends)
    assert drawn.ids.dtype == np.int32
    n = 300 * 32
    assert abs(changed.sum() - 0.1 * n) < 4 * np.sqrt(0.09 * n)


def test_tokens_are_hidden_each_for_itself() -> None:
    """Wherever they stand, and whether or not the one before is."""
    changed = (drop_words(ROWS, TOKENIZER, 0.3, rng()).ids == TOKENIZER.unk).reshape(300, 33)[:, 1:]
    assert abs(changed.mean(0) - 0.3).max() < 4 * np.sqrt(0.21 / 300)
    after = changed[:, 1:][changed[:, :-1]].mean()
    assert abs(after - 0.3) < 4 * np.sqrt(0.21 / 2700)


@given(st.floats(0, 0.99), st.integers(0, 50))
def test_marks_and_tags_are_never_hidden(share: float, seed: int) -> None:
    marks = [TOKENIZER.pad, TOKENIZER.bos, TOKENIZER.eos, TOKENIZER.unk, TOKENIZER.tag("<2de>")]
    rows = Ragged.of([[*marks, *TOKENIZER.encode("abc"), *marks], marks])
    drawn = drop_words(rows, TOKENIZER, share, rng(seed, 0, rows))
    kept = np.isin(rows.ids, marks)
    assert np.array_equal(drawn.ids[kept], rows.ids[kept])
    if share == 0:
        assert drawn == rows


def test_the_same_epoch_hides_the_same_and_another_others() -> None:
    drawn = {(seed, epoch): drop_words(ROWS, TOKENIZER, 0.1, rng(seed, epoch)) for seed in (1, 2) for epoch in (0, 1)}
    assert all(drop_words(ROWS, TOKENIZER, 0.1, rng(s, e)) == rows for (s, e), rows in drawn.items())
    assert all(drawn[a] != drawn[b] for a in drawn for b in drawn if a != b)
