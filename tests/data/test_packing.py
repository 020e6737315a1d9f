"""Packing: every piece once, no row too long, and little room wasted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import packing, scratch
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
    assert packed.lengths[:].tolist() == [5, 1]
    assert alone.lengths[:].tolist() == [3, 1, 2]

    def pairs(rows: Packed) -> list[tuple[int, int]]:
        starts, lengths, counts = rows.locate(np.arange(len(rows)))
        batch = next_token_batch(windows.ids, starts, lengths, 0, counts)
        there = batch.wanted != IGNORE
        assert batch.tokens == int(there.sum()) == 6
        return sorted(zip(batch.given.ids[there].tolist(), batch.wanted[there].tolist(), strict=True))

    assert pairs(packed) == pairs(alone) == [(1, 2), (2, 3), (3, 4), (6, 7), (8, 9), (9, 10)]
    starts, lengths = windows.locate(np.array([0, 2, 1]))
    batch = next_token_batch(windows.ids, starts, lengths, 0, np.array([2, 1]))
    assert batch.given.documents == ((3, 2), (1,))
    assert batch.given.ids.tolist() == [[1, 2, 3, 8, 9], [6, 0, 0, 0, 0]]


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=30),
    st.integers(1, 9),
    st.integers(1, 12),
    st.booleans(),
    st.integers(1, 40),
)
def test_rows_on_access_are_those_of_all_windows_packed_at_once(
    sizes: list[int], context: int, stride: int, apart: bool, block: int
) -> None:
    """As if every window were listed and packed, in the same order, if all texts are packed together."""
    texts = Ragged.of([range(100 * i, 100 * i + n) for i, n in enumerate(sizes)])
    listed, begin = list[tuple[int, int]](), 0
    for end in texts.ends.tolist():
        first = np.arange(begin, max(end - 1, begin), stride)
        if stride < context and len(first) > 1:
            first = first[: max(1, int(np.searchsorted(first, end - context)) + 1)]
        listed += [(int(start), min(context, end - 1 - int(start))) for start in first]
        begin = end
    lengths = np.array([length for _, length in listed], np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "BLOCK", block)
        patch.setattr(scratch, "BLOCK", 4)
        patch.setattr(scratch, "ROOM", 0)
        windows = Windows.of(texts, context=context, stride=stride)
        rows = Packed.alone(windows) if apart else Packed.of(windows, room=context)
    assert sorted(zip(*(side.tolist() for side in windows.locate(np.arange(len(windows)))), strict=True)) == sorted(
        listed
    )
    starts, found, counts = rows.locate(np.arange(len(rows)))
    slices = list(zip(starts.tolist(), found.tolist(), strict=True))
    ends = np.cumsum(counts).tolist()
    made = [slices[end - n : end] for end, n in zip(ends, counts.tolist(), strict=True)]
    assert sorted(slices) == sorted(listed)
    assert rows.lengths[:].tolist() == [sum(length for _, length in row) for row in made]
    assert all(length <= context for length in rows.lengths[:].tolist())
    if not apart and block == 40:
        assert made == [[listed[i] for i in row] for row in pack(lengths, context)]
    if len(rows):
        some = np.array([len(rows) - 1, 0])
        assert rows.lengths[some].tolist() == rows.lengths[:][some].tolist()
