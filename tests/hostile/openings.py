"""Tell whether this process opens a file, or a stranger does.

An inotify event has no author: any program that walks the temporary folder opens the watched files too. So there is a
twin: a copy of the watched folder that nothing refers to. A stranger who walks about opens the twin as often as the
folder. An attempt that opens the folder does so every time it is repeated, and never opens the twin.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from pathlib import Path

IN_OPEN = 0x20
REPEATS = 32
"""A walk cut in two by an observation leaves a surplus of a few files; so many repeats leave that far behind."""


class Openings:
    """Counts files opened in a folder and in its twin."""

    def __init__(self, folder: Path, twin: Path) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._queue: int = self._libc.inotify_init1(
            os.O_NONBLOCK
        )  # one for both: what is read, is read of both at once
        self._in_folder, self._in_twin = self._watch(folder), self._watch(twin)

    def blame(self, repeat: Callable[[], object]) -> list[str]:
        """What the attempt since the last call opened in the folder; `repeat` makes the attempt again."""
        names: set[str] = set()
        surplus = 0
        for i in range(REPEATS):
            if i:
                repeat()
            opened = self._opened()
            in_folder = [name for watch, name in opened if watch in self._in_folder]
            if not in_folder:
                return []
            names.update(in_folder)
            surplus += len(in_folder) - sum(watch in self._in_twin for watch, _ in opened)
        return [f"outside: {name}" for name in sorted(names)] if surplus > REPEATS // 2 else []

    def _watch(self, folder: Path) -> set[int]:
        watches = set()
        for place in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
            watches.add(self._libc.inotify_add_watch(self._queue, os.fsencode(place), IN_OPEN))
            assert min(watches) >= 0, os.strerror(ctypes.get_errno())
        return watches

    def _opened(self) -> list[tuple[int, str]]:
        """Watch and name of each file opened since the last call; a folder itself is the empty name."""
        opened = []
        while True:
            try:
                events = os.read(self._queue, 1 << 16)
            except BlockingIOError:
                return opened
            while events:
                watch, _, _, length = struct.unpack_from("iIII", events)
                opened.append((watch, os.fsdecode(events[16 : 16 + length].rstrip(b"\0"))))
                events = events[16 + length :]
