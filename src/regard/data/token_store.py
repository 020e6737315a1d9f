"""Token lists on disk, encoded in chunks that can be resumed.

    tokens/train/source.ids    all ids, int32               ┐ columns, memory-mapped as `Ragged`
                 source.ends   where each list ends, int64  ┘
                 target.ids, target.ends
                 chunks.jsonl  first line: what the store is made of; then one line per chunk: its rows, sizes and digest

A chunk exists once its line is written. All digests are checked when a store is opened, and everything from the first damaged
chunk on (a power cut, a bad disk) is made again, so nothing needs to be synced. A store made of something else (another
corpus, another tokenizer) is discarded.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from regard.data.progress import track
from regard.data.ragged import Ragged
from regard.data.scratch import ArrayWriter
from regard.errors import SpecError
from regard.files.storage import explain_errors
from regard.spec import Spec, spec

JOURNAL = "chunks.jsonl"
ENDS = np.dtype("<i8")
WIDE, NARROW = np.dtype("<i4"), np.dtype("<u2")
"""The types of ids: of any vocabulary, and of one with at most 65,536 tokens."""
AHEAD = 2
"""Number of chunks in progress: the tokenizer has its own threads, and Python collects its output meanwhile."""

Size = Annotated[int, Field(ge=0, lt=1 << 48)]
J = TypeVar("J")
Chunk = Sequence[Ragged]
"""Corresponding rows of every column."""


@spec
class ChunkRecord(Spec):
    """The journal entry of a chunk: its number of rows, and the bytes it added to each file."""

    rows: Size
    sizes: tuple[Size, ...]
    digest: str = ""

    def of(self, place: int, parts: Iterable[bytes]) -> ChunkRecord:
        """Return this entry with the digest of the chunk's position, counts and bytes."""
        digest = hashlib.blake2b(f"{place} {self.rows} {self.sizes}\n".encode(), digest_size=16)
        for part in parts:
            digest.update(part)
        return replace(self, digest=digest.hexdigest())


class TokenStore:
    """Columns of token lists in a folder; `rows` holds the number of rows of each complete chunk."""

    def __init__(
        self, folder: Path, columns: Sequence[str], made_of: Mapping[str, object], ids: np.dtype[Any] = WIDE
    ) -> None:
        self.folder, self.rows, self._ids = folder, list[int](), ids
        self._head = (json.dumps({**made_of, "columns": columns, "ids": ids.str}) + "\n").encode()
        kinds = (("ids", ids), ("ends", ENDS))
        self._files = [(folder / f"{column}.{kind}", dtype) for column in columns for kind, dtype in kinds]
        self._sizes = [0] * len(self._files)
        with self._explained():
            folder.mkdir(parents=True, exist_ok=True)
            self._recover()

    def add(self, chunk: Chunk) -> None:
        """Append a chunk."""
        parts = [part.tobytes() for part in self._parts(chunk)]
        written = ChunkRecord(len(chunk[0]), tuple(map(len, parts))).of(len(self.rows), parts)
        line = json.dumps(written.plain()).encode() + b"\n"
        with self._explained(sum(written.sizes)):
            for path, part in zip((*self._paths, self.folder / JOURNAL), (*parts, line), strict=True):
                with path.open("ab") as file:
                    file.write(part)
        self._count(written)

    def read(self) -> list[Ragged]:
        """Return the columns, memory-mapped."""
        found = iter([_map_array(path, dtype) for path, dtype in self._files])
        return [Ragged(ids, ends) for ids, ends in zip(found, found, strict=True)]

    @property
    def _paths(self) -> list[Path]:
        return [path for path, _ in self._files]

    def _parts(self, chunk: Chunk) -> Iterator[NDArray[np.integer]]:
        """Yield what a chunk adds to each file."""
        for column, base in zip(chunk, self._sizes[::2], strict=True):
            yield column.ids.astype(self._ids, copy=False)
            yield (column.ends + base // self._ids.itemsize).astype(ENDS, copy=False)

    def _recover(self) -> None:
        """Keep the undamaged chunks at the beginning, and cut off everything after them."""
        journal = self.folder / JOURNAL
        for path in (journal, *self._paths):
            path.open("ab").close()
        head, *lines = journal.read_bytes().splitlines(keepends=True) or [b""]
        if head != self._head:
            journal.write_bytes(self._head)
            lines = []
        kept = len(self._head)
        for line in lines:
            written = self._proved(line)
            if written is None:
                break
            self._count(written)
            kept += len(line)
        for path, size in zip((journal, *self._paths), (kept, *self._sizes), strict=True):
            if path.stat().st_size != size:
                os.truncate(path, size)

    def _proved(self, line: bytes) -> ChunkRecord | None:
        """Return the journal entry of the next chunk if it matches the files."""
        try:
            written = ChunkRecord.parse(json.loads(line))
        except (ValueError, SpecError, RecursionError):
            return None
        places = zip(self._paths, self._sizes, written.sizes, strict=False)
        parts = [_read_bytes(path, start, size) for path, start, size in places]
        return written if line.endswith(b"\n") and written == written.of(len(self.rows), parts) else None

    def _count(self, written: ChunkRecord) -> None:
        self._sizes = [size + more for size, more in zip(self._sizes, written.sizes, strict=True)]
        self.rows.append(written.rows)

    def _explained(self, needed: int = 0) -> AbstractContextManager[None]:
        return explain_errors("keep tokens", self.folder, needed=needed)


class InMemoryTokens:
    """Columns of token lists in memory, or in temporary files if large, with the interface of `TokenStore`."""

    def __init__(self, columns: int) -> None:
        self.rows: list[int] = []
        self._columns = [(ArrayWriter(np.int32), ArrayWriter(np.int64)) for _ in range(columns)]
        self._totals = [0] * columns

    def add(self, chunk: Chunk) -> None:
        for i, ((ids, ends), part) in enumerate(zip(self._columns, chunk, strict=True)):
            ids.add(part.ids)
            ends.add(part.ends + self._totals[i])
            self._totals[i] += len(part.ids)
        self.rows.append(len(chunk[0]))

    def read(self) -> list[Ragged]:
        return [Ragged(ids.array(), ends.array()) for ids, ends in self._columns]


def fill_store(
    store: TokenStore | InMemoryTokens, jobs: Sequence[J], work: Callable[[J], Chunk], what: str = "chunks"
) -> list[Ragged]:
    """Run `work` on all jobs that are not in the store yet, and return the columns of all jobs."""
    done = len(store.rows)
    for chunk in track(_run_ahead(work, jobs[done:]), what, done=done, total=len(jobs)):
        store.add(chunk)
    return store.read()


def _run_ahead(work: Callable[[J], Chunk], jobs: Iterable[J]) -> Iterator[Chunk]:
    """Yield the result of each job in order, while the next ones run."""
    waiting = deque[Future[Chunk]]()
    with ThreadPoolExecutor(AHEAD) as pool:
        for job in jobs:
            waiting.append(pool.submit(work, job))
            if len(waiting) > AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _map_array(path: Path, dtype: Any) -> NDArray[Any]:
    """Map a file as an array; an empty file cannot be mapped."""
    return np.memmap(path, dtype, "r").view(np.ndarray) if path.stat().st_size else np.empty(0, dtype)


def _read_bytes(path: Path, start: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(size)
