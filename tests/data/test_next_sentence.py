"""Next-sentence pairs: half of them true, the others from another document, and none too long."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from regard.data.next_sentence import SentenceStore, make_segment_pairs
from regard.data.ragged import Ragged

DOCUMENTS = [[[1000 * d + 10 * s + t for t in range(3 + (d + s) % 5)] for s in range(12)] for d in range(30)]
"""A token says which document and sentence it is of."""


@given(st.integers(8, 60), st.floats(0, 0.9), st.integers(0, 500))
def test_what_follows_follows_and_what_does_not_is_of_another_document(
    room: int, short_seq_prob: float, seed: int
) -> None:
    pairs = make_segment_pairs(DOCUMENTS, room=room, short_seq_prob=short_seq_prob, lap=seed)
    for first, second, is_next in zip(pairs.first, pairs.second, pairs.is_next, strict=True):
        a, b = first.tolist(), second.tolist()
        assert a
        assert b
        assert len(a) + len(b) <= room
        assert len({t // 1000 for t in a}) == len({t // 1000 for t in b}) == 1, "a segment is of one document"
        assert (a[0] // 1000 == b[0] // 1000) is bool(is_next)
        assert a == sorted(a)
        assert b == sorted(b)
        if is_next:
            assert a[-1] < b[0]


def test_about_half_of_them_follow() -> None:
    documents = [[[1] * 5 for _ in range(1000)] for _ in range(10)]  # so long that their ends hardly count
    is_next = make_segment_pairs(documents, room=40, short_seq_prob=0.1, lap=1).is_next
    assert len(is_next) > 1000
    assert 0.45 < is_next.mean() < 0.55


def test_every_sentence_is_a_first_or_truly_second_once() -> None:
    """Sentences replaced by others go to the next chunk."""
    pairs = make_segment_pairs(DOCUMENTS, room=1000, short_seq_prob=0.0, lap=2)
    own = [t for first, second, is_next in zip(pairs.first, pairs.second, pairs.is_next, strict=True)
           for t in [*first.tolist(), *(second.tolist() if is_next else [])]]  # fmt: skip
    assert sorted(own) == sorted(t for document in DOCUMENTS for sentence in document for t in sentence)


def test_a_pair_that_is_too_long_loses_tokens_at_both_ends_of_its_longer_side() -> None:
    pairs = make_segment_pairs(
        [[[*range(50)], [*range(100, 105)]], [[7000], [7001]]], room=20, short_seq_prob=0.0, lap=4
    )
    long = next(first.tolist() for first in pairs.first if first[0] < 50 and len(first) > 10)
    assert long == [*range(long[0], long[-1] + 1)]
    assert long[0] > 0
    assert long[-1] < 49


def test_documents_can_be_cut_in_parts_and_from_a_store() -> None:
    """The same pairs, however the work is divided."""
    tokens = Ragged.of([[token for sentence in document for token in sentence] for document in DOCUMENTS])
    stored = SentenceStore(tokens, Ragged.of([[len(sentence) for sentence in document] for document in DOCUMENTS]))
    assert list(stored) == DOCUMENTS
    assert stored.blocks() == [slice(0, 30)]
    whole = make_segment_pairs(DOCUMENTS, room=40, short_seq_prob=0.1, lap=3)
    parts = [
        make_segment_pairs(stored, room=40, short_seq_prob=0.1, lap=3, some=some)
        for some in (range(7), range(7, 29), range(29, 30), range(0))
    ]
    for side in ("first", "second"):
        assert Ragged.concat([getattr(part, side) for part in parts]) == getattr(whole, side)
    assert np.concatenate([part.is_next for part in parts]).tolist() == whole.is_next.tolist()
    assert make_segment_pairs(DOCUMENTS, room=40, short_seq_prob=0.1, lap=4).first != whole.first
