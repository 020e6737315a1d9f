"""Texts in a scratch file are a list of texts to everybody who looks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import line_store
from regard.data.line_store import ConcatenatedLines, LineWriter, MappedLines, take_rows
from regard.errors import DiskFull

TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), max_size=12)


@pytest.fixture(params=[1, 40, 1 << 20], ids=["every text", "some texts", "none"], autouse=True)
def room(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many bytes stay in memory; blocks are small, so that there are several."""
    monkeypatch.setattr(line_store, "ROOM", request.param)
    monkeypatch.setattr(line_store, "BLOCK", 3)
    return int(request.param)


def piled(texts: list[str]) -> MappedLines | list[str]:
    pile = LineWriter()
    for text in texts:
        pile.add(text)
    made = pile.lines()
    assert isinstance(made, MappedLines | list)
    return made


@settings(max_examples=40)
@given(TEXTS, st.data())
def test_they_are_what_a_list_is(texts: list[str], data: st.DataObject) -> None:
    made = piled(texts)
    assert len(made) == len(texts)
    assert list(made) == texts
    assert list(reversed(made)) == texts[::-1]
    for i in range(-len(texts), len(texts)):
        assert made[i] == texts[i]
    part = data.draw(st.slices(len(texts)))
    assert made[part] == texts[part]
    for beyond in (len(texts), -len(texts) - 1):
        with pytest.raises(IndexError):
            made[beyond]


@settings(max_examples=40)
@given(TEXTS.filter(bool), st.data())
def test_rows_are_taken_in_their_order_and_from_what_was_taken(texts: list[str], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(texts) - 1), min_size=1, max_size=9))
    some = take_rows(piled(texts), np.array(rows))
    assert list(some) == [texts[row] for row in rows]
    again = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=9))
    assert list(take_rows(some, np.array(again, np.int64))) == [texts[rows[i]] for i in again]


@settings(max_examples=40)
@given(st.lists(TEXTS, max_size=4), st.data())
def test_parts_are_joined(parts: list[list[str]], data: st.DataObject) -> None:
    joined, texts = ConcatenatedLines([piled(part) for part in parts]), [text for part in parts for text in part]
    assert (len(joined), list(joined)) == (len(texts), texts)
    assert [joined[i] for i in range(-len(texts), len(texts))] == texts * 2
    part = data.draw(st.slices(len(texts)))
    assert joined[part] == texts[part]
    with pytest.raises(IndexError):
        joined[len(texts)]


def test_they_are_kept_where_there_is_room(room: int) -> None:
    assert isinstance(piled(["a"]), list if room > 65 else MappedLines)
    assert isinstance(piled(["a"] * 20_000), MappedLines)


def test_a_full_disk_is_told(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    monkeypatch.setattr(line_store, "_open_scratch", lambda: full.open("wb", buffering=0))
    with pytest.raises(
        DiskFull, match=r"not enough disk space to keep the texts of a corpus in \S+ \(No space left on device\)"
    ):
        piled(["a"] * 20_000)
