"""Packing: every piece once, no row too long, and little room wasted."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from regard.data.batch import IGNORE, next_token_batch
from regard.data.packing import Packed, pack
from regard.data.ragged import Ragged
from regard.data.windows import Windows


@given(st.lists(st.integers(1, 12), max_size=40))
def test_every_piece_is_in_one_row_and_none_is_too_long(sizes: list[int]) -> None:
    rows = pack(np.array(sizes, np.int64), 12)
    assert sorted(i for row in rows for i in row) == list(range(len(sizes)))
    totals = [sum(sizes[i] for i in row) for row in rows]
    assert max(totals, default=0) <= 12
    least = max(-(-sum(sizes) // 12), sum(size > 6 for size in sizes))
    assert len(rows) <= 11 / 9 * least + 1, "best fit decreasing is never far from the best"


def test_pieces_that_fill_a_row_stay_as_they_are() -> None:
    assert pack(np.array([8, 8, 8, 3]), 8) == [[0], [1], [2], [3]]
    assert pack(np.array([7, 4, 6, 2, 2]), 8) == [[0], [2, 3], [1, 4]]


def test_packed_rows_ask_for_the_same_pairs_as_separate_ones() -> None:
    texts = Ragged.of([[1, 2, 3, 4], [5], [6, 7], [8, 9, 10]])
    windows = Windows.of(texts, context=5, stride=5)
    packed, alone = Packed.of(windows, room=5), Packed.alone(windows)
    assert packed.lengths.tolist() == [5, 1]
    assert alone.lengths.tolist() == [3, 1, 2]

    def pairs(rows: Packed) -> list[tuple[int, int]]:
        ids = rows.rows.ids
        batch = next_token_batch(windows.ids, windows.starts[ids], windows.lengths[ids], 0, rows.rows.lengths)
        there = batch.wanted != IGNORE
        assert batch.tokens == int(there.sum()) == 6
        return sorted(zip(batch.given.ids[there].tolist(), batch.wanted[there].tolist(), strict=True))

    assert pairs(packed) == pairs(alone) == [(1, 2), (2, 3), (3, 4), (6, 7), (8, 9), (9, 10)]
    batch = next_token_batch(windows.ids, windows.starts[[0, 2, 1]], windows.lengths[[0, 2, 1]], 0, np.array([2, 1]))
    assert batch.given.documents == ((3, 2), (1,))
    assert batch.given.ids.tolist() == [[1, 2, 3, 8, 9], [6, 0, 0, 0, 0]]
