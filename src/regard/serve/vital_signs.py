"""Vital signs of the inference process, in shared memory.

    beat                a thread of its own counts it up while it gets the GIL
    pool                when a thread of the pool last answered
    one row a scheduler     when its loop last turned, and the request that it computes
    one row a request       whether its thread computes or waits, since when it is late

The inference process writes, the API process reads: also when the other one is stopped, holds the GIL, or is about to be
killed. Times are those of `time.monotonic`, which the processes of one machine share.
"""

from __future__ import annotations

import dataclasses
import mmap
import os
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

FREE, COMPUTING, WAITING = 0, 1, 2
IDLE, STEP = 0, -1
MAX_SCHEDULERS = 64
"""Schedulers that are watched; models that were replaced may still finish requests beside the new ones."""
_HEAD, _SCHEDULER, _REQUEST = struct.Struct("<Qd"), struct.Struct("<dqd"), struct.Struct("<qqqd")


@dataclasses.dataclass(frozen=True)
class SchedulerSign:
    """State of a scheduler: it last turned at `turned`; it computes a request, a `STEP` of its batch, or is `IDLE`."""

    turned: float
    current: int
    deadline: float
    """Deadline of the request that it computes. The thread of a late request may have left."""


@dataclasses.dataclass(frozen=True)
class RequestSign:
    """State of a request's thread, the row of the scheduler in whose batch it is (or -1), and its deadline."""

    number: int
    state: int
    scheduler: int
    deadline: float


class VitalSigns:
    """The table; `file` names it to the other process."""

    def __init__(self, requests: int, file: int | None = None) -> None:
        self._requests, self._free = requests, [*range(requests)]
        self._free_schedulers, self._lock = [*range(MAX_SCHEDULERS)], threading.Lock()
        size = _HEAD.size + MAX_SCHEDULERS * _SCHEDULER.size + requests * _REQUEST.size
        self._own = None if file is not None else _open_memory(size)
        self.file = self._own.fileno() if self._own is not None else int(file or 0)
        self._map = mmap.mmap(self.file, size)

    def close(self) -> None:
        """Give the memory back; the other process keeps its own."""
        self._map.close()
        if self._own is not None:
            self._own.close()

    # ------------------------------------------------------------------------------------------------ written

    def count_beat(self, pool: float) -> None:
        """Show that the process runs, and when its pool of threads last answered."""
        _HEAD.pack_into(self._map, 0, self.beat + 1, pool)

    @contextmanager
    def show_request(self, number: int, deadline: float) -> Iterator[RequestRow]:
        """The row of a request, for the time of the block."""
        with self._lock:
            place = self._free.pop() if self._free else None
        row = RequestRow(self, place, number, deadline)
        row.show(COMPUTING)
        try:
            yield row
        finally:
            row.show(FREE)
            with self._lock:
                self._free += [] if place is None else [place]

    def open_scheduler(self) -> SchedulerRow:
        """A row for a scheduler, until it closes it; one that shows nothing, if there are too many."""
        with self._lock:
            return SchedulerRow(self, self._free_schedulers.pop() if self._free_schedulers else None)

    def write_request(self, place: int, *values: float) -> None:
        _REQUEST.pack_into(self._map, _HEAD.size + MAX_SCHEDULERS * _SCHEDULER.size + place * _REQUEST.size, *values)

    def write_scheduler(self, place: int, *values: float) -> None:
        _SCHEDULER.pack_into(self._map, _HEAD.size + place * _SCHEDULER.size, *values)

    def free_scheduler(self, place: int) -> None:
        """Let another scheduler have this row."""
        with self._lock:
            self._free_schedulers.append(place)

    # ------------------------------------------------------------------------------------------------ read

    @property
    def beat(self) -> int:
        return int(_HEAD.unpack_from(self._map, 0)[0])

    @property
    def pool_answered(self) -> float:
        return float(_HEAD.unpack_from(self._map, 0)[1])

    def list_schedulers(self) -> dict[int, SchedulerSign]:
        """Signs of the schedulers that there are, by row."""
        rows = [_SCHEDULER.unpack_from(self._map, _HEAD.size + i * _SCHEDULER.size) for i in range(MAX_SCHEDULERS)]
        return {i: SchedulerSign(*row) for i, row in enumerate(rows) if row[0] > 0}

    def list_requests(self) -> list[RequestSign]:
        """Signs of the requests that threads have taken up."""
        start = _HEAD.size + MAX_SCHEDULERS * _SCHEDULER.size
        rows = [_REQUEST.unpack_from(self._map, start + i * _REQUEST.size) for i in range(self._requests)]
        return [RequestSign(*row) for row in rows if row[1] != FREE]

    def list_running(self) -> list[int]:
        """The numbers of the requests that are computed right now, by their own threads or by schedulers."""
        schedulers = self.list_schedulers()
        steps = {place for place, sign in schedulers.items() if sign.current == STEP}
        calls = {sign.current for sign in schedulers.values() if sign.current > 0}
        rows = [each for each in self.list_requests() if each.state == COMPUTING or each.scheduler in steps]
        return sorted(calls.union(each.number for each in rows))


def _open_memory(size: int) -> IO[bytes]:
    """Open a file without a name, in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        made: IO[bytes] = os.fdopen(os.memfd_create("regard"), "w+b")
    else:
        made = tempfile.TemporaryFile()  # noqa: SIM115  # its owner closes it
    made.truncate(size)
    return made


class RequestRow:
    """The row of one request."""

    def __init__(self, signs: VitalSigns, place: int | None, number: int, deadline: float) -> None:
        self._signs, self._place, self._number, self._deadline = signs, place, number, deadline
        self._state, self._scheduler = FREE, -1

    def show(self, state: int) -> None:
        """Show what the thread of the request does."""
        self._state = state
        self._write()

    def join_batch(self, scheduler: int) -> None:
        """Show in the batch of which scheduler the request has sequences."""
        self._scheduler = scheduler
        self._write()

    def _write(self) -> None:
        if self._place is not None:
            self._signs.write_request(self._place, self._number, self._state, self._scheduler, self._deadline)


class SchedulerRow:
    """The row of one scheduler."""

    def __init__(self, signs: VitalSigns | None = None, place: int | None = None) -> None:
        self._signs, self.place = signs, -1 if place is None else place

    def turn(self, current: int, deadline: float | None = None) -> None:
        """Show that the loop has come round, and what it does now: a request by number, `STEP` or `IDLE`."""
        if self._signs is not None and self.place >= 0:
            self._signs.write_scheduler(self.place, time.monotonic(), current, deadline or 0.0)

    def close(self) -> None:
        if self._signs is not None and self.place >= 0:
            self._signs.write_scheduler(self.place, 0.0, IDLE, 0.0)
            self._signs.free_scheduler(self.place)
