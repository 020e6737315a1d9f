"""Columns of token lists on disk: made once, taken up where they were left, and never believed without proof."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.progress import progress_to
from regard.data.ragged import Ragged
from regard.data.token_store import JOURNAL, Chunk, InMemoryTokens, TokenStore, fill_store
from regard.errors import CheckpointError

ROW = st.tuples(st.lists(st.integers(0, 2**31 - 1), max_size=3), st.lists(st.integers(0, 9), max_size=3))
COLUMNS, MADE_OF = ("source", "target"), {"corpus": "c", "tokenizer": "t"}
FILES = ("source.ids", "source.ends", "target.ids", "target.ends", JOURNAL)


def columns(rows: list[tuple[list[int], list[int]]]) -> Chunk:
    return [Ragged.of([row[side] for row in rows]) for side in (0, 1)]


def work(job: int) -> Chunk:
    """Chunk `job`: some rows that are all its own."""
    return columns([([job, row], [10 * job] * (row % 3)) for row in range(job % 4)])


def opened(folder: Path, made_of: dict[str, str] = MADE_OF) -> TokenStore:
    return TokenStore(folder, COLUMNS, made_of)


def content(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


@settings(max_examples=30)
@given(st.lists(st.lists(ROW, max_size=3), max_size=3))
def test_what_was_added_is_read_in_memory_and_on_disk(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[list[tuple[list[int], list[int]]]]
) -> None:
    folder = tmp_path_factory.mktemp("store")
    wanted = columns(list(itertools.chain.from_iterable(chunks)))
    for kind in (InMemoryTokens, opened, opened):  # the last one has nothing left to do
        store = InMemoryTokens(2) if kind is InMemoryTokens else opened(folder)
        assert fill_store(store, chunks, columns) == wanted
        assert store.rows == [len(chunk) for chunk in chunks]


def test_columns_are_mapped_not_read(tmp_path: Path) -> None:
    source, _ = fill_store(opened(tmp_path), range(9), work)
    base: object = source.ids
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)
    assert not source.ids.flags.writeable


class Pulled(Exception):
    """The plug."""


def until(stop: int) -> tuple[Callable[[int], Chunk], list[int]]:
    """Work that ends at a job, and the list of those that were done."""
    done: list[int] = []

    def some(job: int) -> Chunk:
        if job == stop:
            raise Pulled
        done.append(job)
        return work(job)

    return some, done


@pytest.mark.parametrize("stop", range(8))
def test_an_interruption_at_any_chunk_costs_only_what_was_not_written(tmp_path: Path, stop: int) -> None:
    whole = fill_store(opened(tmp_path / "whole"), range(8), work)
    some, _ = until(stop)
    with pytest.raises(Pulled):
        fill_store(opened(tmp_path / "cut"), range(8), some)
    store = opened(tmp_path / "cut")
    assert len(store.rows) == stop
    again, done = until(-1)
    assert fill_store(store, range(8), again) == whole
    assert sorted(done) == list(range(stop, 8))
    assert content(tmp_path / "cut") == content(tmp_path / "whole")


@pytest.mark.parametrize("name", FILES)
def test_any_cut_of_any_file_is_noticed_and_made_good(tmp_path: Path, name: str) -> None:
    wanted = fill_store(opened(tmp_path), range(4), work)
    before = content(tmp_path)
    for size in range(0, len(before[name]), 1 + 6 * (name == JOURNAL)):
        (tmp_path / name).write_bytes(before[name][:size])
        store = opened(tmp_path)
        assert len(store.rows) < 4
        assert fill_store(store, range(4), work) == wanted
        assert content(tmp_path) == before


@pytest.mark.parametrize("name", FILES)
def test_any_byte_that_changed_is_noticed_and_made_good(tmp_path: Path, name: str) -> None:
    wanted = fill_store(opened(tmp_path), range(4), work)
    before = content(tmp_path)
    for place in range(0, len(before[name]), 1 + 6 * (name == JOURNAL)):
        hurt = bytearray(before[name])
        hurt[place] ^= 4
        (tmp_path / name).write_bytes(hurt)
        assert fill_store(opened(tmp_path), range(4), work) == wanted
        assert content(tmp_path) == before


@pytest.mark.parametrize("more", [b'{"rows": 1', b"[" * 100_000 + b"\n"])
def test_bytes_that_belong_to_no_chunk_are_cut_off(tmp_path: Path, more: bytes) -> None:
    wanted = fill_store(opened(tmp_path), range(3), work)
    before = content(tmp_path)
    for name in FILES:
        with (tmp_path / name).open("ab") as file:
            file.write(more)
    assert fill_store(opened(tmp_path), range(3), work) == wanted
    assert content(tmp_path) == before


@pytest.mark.parametrize("changed", [{"corpus": "d"}, {"tokenizer": "u"}, {"more": "x"}])
def test_what_was_made_of_something_else_is_thrown_away(tmp_path: Path, changed: dict[str, str]) -> None:
    fill_store(opened(tmp_path), range(5), work)
    store = opened(tmp_path, MADE_OF | changed)
    assert store.rows == []
    assert fill_store(store, range(2), work) == fill_store(InMemoryTokens(2), range(2), work)
    assert opened(tmp_path).rows == []  # and back


def test_a_whole_store_is_left_alone(tmp_path: Path) -> None:
    fill_store(opened(tmp_path), range(5), work)
    before = {name: (tmp_path / name).stat().st_mtime_ns for name in FILES}
    (tmp_path / "beside").write_text("not ours")
    opened(tmp_path).read()
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in FILES} == before
    assert (tmp_path / "beside").exists()


def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("")
    with pytest.raises(CheckpointError, match=r"cannot keep tokens in .*tokens"):
        opened(tmp_path / "tokens")


def test_progress_is_said_with_the_time_that_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0, 7)
    monkeypatch.setattr("regard.data.progress.time.monotonic", lambda: float(next(clock)))
    said: list[str] = []
    with progress_to(said.append):
        fill_store(opened(tmp_path), range(5), work, "chunks of tokens")
    assert said == ["chunks of tokens: 2 of 5, 21 s left", "chunks of tokens: 4 of 5, 7 s left"]
