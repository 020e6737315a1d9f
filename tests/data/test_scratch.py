"""A large array on disk is the array."""

from __future__ import annotations

import numpy as np
import pytest

from regard.data import scratch
from regard.data.scratch import ArrayWriter, blocks, measure_lengths


@pytest.fixture(params=[0, 40, 1 << 20], ids=["on disk", "some", "in memory"])
def room(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(scratch, "ROOM", request.param)
    monkeypatch.setattr(scratch, "BLOCK", 3)
    return int(request.param)


@pytest.mark.parametrize("row", [(), (2,), (2, 3)])
def test_what_was_added_is_there(room: int, row: tuple[int, ...]) -> None:
    whole = np.arange(20 * int(np.prod(row)), dtype=np.int32).reshape(20, *row)
    out = ArrayWriter(np.int32, row)
    for some in blocks(20, 7):
        out.add(whole[some])
    found = out.array()
    assert (found == whole).all()
    assert found.flags.writeable == (room > 1000)


def test_nothing_was_added(room: int) -> None:
    assert ArrayWriter(np.int64, (2,)).array().shape == (0, 2)


def test_lengths(room: int) -> None:
    ends, other = np.array([3, 3, 4, 9, 9]), np.array([1, 2, 3, 4, 5])
    assert measure_lengths(ends).tolist() == [3, 0, 1, 5, 0]
    assert measure_lengths(ends, other).tolist() == [[3, 1], [0, 1], [1, 1], [5, 1], [0, 1]]
