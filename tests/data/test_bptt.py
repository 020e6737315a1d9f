"""Streams: every row goes on where it stopped, and together the rows are the whole text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.batch import IGNORE, stream_batch
from regard.data.bptt import TokenStream
from regard.data.ragged import Ragged
from regard.errors import DataError


@given(st.integers(2, 60), st.integers(1, 9), st.integers(1, 6), st.integers(0, 4))
def test_rows_go_on_and_cover_everything(size: int, context: int, count: int, epoch: int) -> None:
    if size - 1 < count:
        return
    stream = TokenStream.of(Ragged.of([list(range(size))]), context)
    rows: list[list[int]] = [[] for _ in range(count)]
    for batch in (stream_batch(stream.ids, stream.docs, s) for s in stream.rows(count, 1).epoch(epoch)):
        assert batch.given.ids.shape[1] <= context
        assert batch.given.first == len(rows[0]), "where the row stands"
        assert (batch.wanted == batch.given.ids + 1).all()
        for row, ids in zip(rows, batch.given.ids.tolist(), strict=True):
            assert not row or ids[0] == row[-1] + 1, "on from where it stopped"
            row += ids
    read = sorted(i for row in rows for i in row)
    assert sorted(set(read)) == list(range(size - 1))
    assert len(read) - len(set(read)) < count, "neighbours share a token at most"
    assert len({len(row) for row in rows}) == 1


def test_every_epoch_is_cut_elsewhere_and_always_the_same_way() -> None:
    rows = TokenStream.of(Ragged.of([list(range(1000))]), 16).rows(3, seed=5)
    cuts = [tuple(int(s[0, 1]) for s in rows.epoch(e)) for e in range(6)]
    assert cuts[0][:3] == (16, 16, 16)
    assert len({cut[0] for cut in cuts}) > 3
    assert cuts == [tuple(int(s[0, 1]) for s in rows.epoch(e)) for e in range(6)]


def test_the_end_of_a_text_is_not_asked_for_the_beginning_of_the_next() -> None:
    stream = TokenStream.of(Ragged.of([[1, 2, 3], [4, 5, 6, 7]]), 6)
    (segments,) = stream.rows(1).epoch(0)
    batch = stream_batch(stream.ids, stream.docs, segments)
    assert batch.given.ids.tolist() == [[1, 2, 3, 4, 5, 6]]
    assert batch.wanted.tolist() == [[2, 3, IGNORE, 5, 6, 7]]
    assert batch.given.docs is not None
    assert batch.given.docs.tolist() == [[0, 0, 0, 1, 1, 1]]
    assert batch.tokens == 5


def test_as_long_as_its_segments() -> None:
    stream = TokenStream.of(Ragged.of([list(range(24))]), 5)
    assert len(stream) == len(stream.lengths) == len(stream.rows(1).epoch(0)) == 5
    assert np.asarray(stream.lengths).tolist() == [5, 5, 5, 5, 3]


def test_more_rows_than_tokens() -> None:
    with pytest.raises(DataError, match=r"^a stream of 3 tokens cannot be read in 4 rows; lower train\.batch_tokens$"):
        TokenStream.of(Ragged.of([[1, 2, 3, 4]]), 1).rows(4)
