"""What is a document, what is a sentence, and what is set aside."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from regard.data.documents import chunk_evenly, hold_out_documents, split_documents, split_sentences
from regard.data.ragged import Ragged

TEXT = "One. Two!\nThree\n\n  \nFour? Five\r\n\r\nSix\n"


def test_documents_and_their_sentences() -> None:
    assert split_documents(TEXT, "file") == [TEXT]
    assert split_documents(TEXT, "blank") == ["One. Two!\nThree", "Four? Five", "Six"]
    assert split_documents(TEXT, "line") == ["One. Two!", "Three", "Four? Five", "Six"]
    assert split_sentences("One. Two!\nThree", "blank") == ["One. Two!", "Three"]
    assert split_sentences("Four? Five e.g. x", "line") == ["Four?", "Five e.g.", "x"]


def test_the_end_is_set_aside() -> None:
    assert hold_out_documents(["abcdefghij"], 0.2) == (["abcdefgh"], ["ij"])
    assert hold_out_documents(["a", "b", "c", "d"], 0.25) == (["a", "b", "c"], ["d"])
    assert hold_out_documents(["a", "b"], 0.01) == (["a"], ["b"])
    assert hold_out_documents(["a", "b"], 0.99) == (["a"], ["b"])


@given(st.lists(st.integers(0, 40), max_size=6), st.integers(1, 9))
def test_stretches_are_the_texts_cut_evenly(sizes: list[int], max_length: int) -> None:
    texts = Ragged.of([[100 * i + j for j in range(n)] for i, n in enumerate(sizes)])
    cut = chunk_evenly(texts, max_length)
    assert cut.ids.tolist() == texts.ids.tolist()
    rows = [row.tolist() for row in cut]
    assert all(0 < len(row) <= max_length for row in rows)
    assert all(row[0] // 100 == row[-1] // 100 for row in rows), "none reaches over the end of its text"
    for i, n in enumerate(sizes):
        own = [len(row) for row in rows if row[0] // 100 == i]
        assert len(own) == -(-n // max_length)
        assert not own or max(own) - min(own) <= 1
