"""Ragged lists: two flat arrays behave like a list of lists."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.ragged import Ragged
from regard.errors import DataError

LISTS = st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=5), max_size=8)


def plain(ragged: Ragged) -> list[list[int]]:
    return [row.tolist() for row in ragged]


@given(LISTS)
def test_of_gives_back_the_lists(lists: list[list[int]]) -> None:
    ragged = Ragged.of(lists)
    assert plain(ragged) == lists
    assert len(ragged) == len(lists)
    assert ragged.lengths.tolist() == [len(row) for row in lists]
    assert [ragged[i - len(lists)].tolist() for i in range(len(lists))] == lists  # counted from the end
    assert ragged == Ragged.of([np.array(row, np.int64) for row in lists])
    assert ragged == Ragged.of(iter(lists))


@given(st.lists(LISTS, max_size=4))
def test_concat_puts_parts_one_after_the_other(parts: list[list[list[int]]]) -> None:
    assert plain(Ragged.concat([Ragged.of(part) for part in parts])) == [row for part in parts for row in part]


@given(LISTS.filter(bool), st.data())
def test_take_gathers_in_the_given_order(lists: list[list[int]], data: st.DataObject) -> None:
    indices = data.draw(st.lists(st.integers(-len(lists), len(lists) - 1), max_size=10))
    assert plain(Ragged.of(lists).take(indices)) == [lists[i] for i in indices]


@given(LISTS, LISTS)
def test_equal_means_the_same_lists(one: list[list[int]], other: list[list[int]]) -> None:
    assert (Ragged.of(one) == Ragged.of(other)) is (one == other)
    assert Ragged.of(one) != one


def test_a_row_is_a_view() -> None:
    ragged = Ragged.of([[1, 2], [3]])
    assert np.shares_memory(ragged[0], ragged.ids)
    assert not np.shares_memory(ragged.take([0]).ids, ragged.ids)


@pytest.mark.parametrize("index", [2, -3])
def test_beyond_the_end_is_an_index_error(index: int) -> None:
    with pytest.raises(IndexError):
        Ragged.of([[1], [2]])[index]


def test_memory_mapped_arrays_stay_on_disk(tmp_path: Path) -> None:
    ragged = Ragged.of([[1, 2], [], [3]])
    np.save(tmp_path / "ids.npy", ragged.ids)
    np.save(tmp_path / "ends.npy", ragged.ends)
    mapped = Ragged(np.load(tmp_path / "ids.npy", mmap_mode="r"), np.load(tmp_path / "ends.npy", mmap_mode="r"))
    assert mapped == ragged
    assert isinstance(mapped[0].base, np.memmap)


def test_arrays_of_another_kind_are_refused() -> None:
    with pytest.raises(DataError, match=r"ids should be a flat array of int32, got int64 \(3,\)"):
        Ragged(np.arange(3), np.array([3]))  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"ends should be a flat array of int64, got int64 \(1, 1\)"):
        Ragged(np.arange(3, dtype=np.int32), np.array([[3]]))


@pytest.mark.parametrize("ends", [[2], [4], [], [2, 1, 3], [-1, 3]])
def test_ends_that_do_not_fit_the_ids_are_refused(ends: list[int]) -> None:
    with pytest.raises(DataError, match="ends should increase up to the number of ids, 3"):
        Ragged(np.arange(3, dtype=np.int32), np.array(ends, np.int64))


def test_an_id_beyond_32_bits_is_refused_not_wrapped() -> None:
    with pytest.raises(OverflowError):
        Ragged.of([[2**31]])


def test_lists_of_another_where_one_does_not_keep_its_own() -> None:
    one, other = Ragged.of([[1, 2], [], [3]]), Ragged.of([[4], [5, 6], [7]])
    assert one.where(np.array([True, False, False]), other) == Ragged.of([[1, 2], [5, 6], [7]])
    assert one.where(np.array([True, True, True]), other) is one
