"""What is a document, what is a sentence, and what is set aside."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from regard.data.documents import EvenChunks, hold_out_documents, split_documents, split_sentences
from regard.data.ragged import Ragged

TEXT = "One. Two!\nThree\n\n  \nFour? Five\r\n\r\nSix\n"


def test_documents_and_their_sentences() -> None:
    assert split_documents(TEXT, "file") == [TEXT]
    assert split_documents(TEXT, "blank") == ["One. Two!\nThree", "Four? Five", "Six"]
    assert split_documents(TEXT, "line") == ["One. Two!", "Three", "Four? Five", "Six"]
    assert split_sentences("One. Two!\nThree", "blank") == ["One. Two!", "Three"]
    assert split_sentences("Four? Five e.g. x", "line") == ["Four?", "Five e.g.", "x"]


def test_split_documents_is_linear_in_blanks() -> None:
    """Each blank was tried as the first of a blank line: 300,000 of them took minutes."""
    blanks = " \t" * 150_000
    assert split_documents(f"a{blanks}b{blanks}\n\nc", "blank") == [f"a{blanks}b", "c"]


def test_the_end_is_set_aside() -> None:
    assert hold_out_documents(["abcdefghij"], 0.2) == (["abcdefgh"], ["ij"])
    assert hold_out_documents(["a", "b", "c", "d"], 0.25) == (["a", "b", "c"], ["d"])
    assert hold_out_documents(["a", "b"], 0.01) == (["a"], ["b"])
    assert hold_out_documents(["a", "b"], 0.99) == (["a"], ["b"])


@given(st.lists(st.integers(0, 40), max_size=6), st.integers(1, 9), st.integers(1, 2))
def test_chunks_are_the_texts_cut_evenly(sizes: list[int], max_length: int, least: int) -> None:
    if max_length < least:
        return
    texts = Ragged.of([[100 * i + j for j in range(n)] for i, n in enumerate(sizes)])
    cut = EvenChunks(texts, max_length, least)
    found = cut.take(np.arange(len(cut)))
    rows = [row.tolist() for row in found]
    assert cut.lengths[:].tolist() == found.lengths.tolist()
    assert all(least <= len(row) <= max_length for row in rows)
    assert all(row[0] // 100 == row[-1] // 100 for row in rows), "none reaches over the end of its text"
    assert cut.left_out == sum(0 < n < least for n in sizes)
    even = max_length >= 2 * least - 1
    for i, n in enumerate(sizes):
        own = [row for row in rows if row[0] // 100 == i]
        assert not own or max(map(len, own)) - min(map(len, own)) <= 1
        if n >= least and even:
            assert [token for row in own for token in row] == texts[i].tolist()
            assert len(own) == -(-n // max_length)
