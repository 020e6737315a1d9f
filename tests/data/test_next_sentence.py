"""Next-sentence pairs: half of them true, the others from another document, and none too long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from regard.data.example_rng import Bits
from regard.data.next_sentence import follow

DOCUMENTS = [[[1000 * d + 10 * s + t for t in range(3 + (d + s) % 5)] for s in range(12)] for d in range(30)]
"""A token says which document and sentence it is of."""


@given(st.integers(8, 60), st.floats(0, 0.9), st.integers(0, 500))
def test_what_follows_follows_and_what_does_not_is_of_another_document(room: int, shorter: float, seed: int) -> None:
    pairs = follow(DOCUMENTS, room=room, shorter=shorter, bits=Bits(seed))
    for first, second, truly in zip(pairs.first, pairs.second, pairs.truly, strict=True):
        a, b = first.tolist(), second.tolist()
        assert a
        assert b
        assert len(a) + len(b) <= room
        assert len({t // 1000 for t in a}) == len({t // 1000 for t in b}) == 1, "a segment is of one document"
        assert (a[0] // 1000 == b[0] // 1000) is bool(truly)
        assert a == sorted(a)
        assert b == sorted(b)
        if truly:
            assert a[-1] < b[0]


def test_about_half_of_them_follow() -> None:
    documents = [[[1] * 5 for _ in range(1000)] for _ in range(10)]  # so long that their ends hardly count
    truly = follow(documents, room=40, shorter=0.1, bits=Bits(1)).truly
    assert len(truly) > 1000
    assert 0.45 < truly.mean() < 0.55


def test_every_sentence_is_a_first_or_truly_second_once() -> None:
    """Sentences replaced by others go to the next chunk."""
    pairs = follow(DOCUMENTS, room=1000, shorter=0.0, bits=Bits(2))
    own = [t for first, second, truly in zip(pairs.first, pairs.second, pairs.truly, strict=True)
           for t in [*first.tolist(), *(second.tolist() if truly else [])]]  # fmt: skip
    assert sorted(own) == sorted(t for document in DOCUMENTS for sentence in document for t in sentence)


def test_a_pair_that_is_too_long_loses_tokens_at_both_ends_of_its_longer_side() -> None:
    pairs = follow([[[*range(50)], [*range(100, 105)]], [[7000], [7001]]], room=20, shorter=0.0, bits=Bits(4))
    long = next(first.tolist() for first in pairs.first if first[0] < 50 and len(first) > 10)
    assert long == [*range(long[0], long[-1] + 1)]
    assert long[0] > 0
    assert long[-1] < 49
