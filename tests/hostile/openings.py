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
REPEATS = 8


class Openings:
    """Counts files opened in a folder and in its twin."""

    def __init__(self, folder: Path, twin: Path) -> None:
        self._watches = [_watch(folder), _watch(twin)]

    def blame(self, repeat: Callable[[], object]) -> list[str]:
        """What the attempt since the last call opened in the folder; `repeat` makes the attempt again."""
        names: list[str] = []
        surplus = 0
        for i in range(REPEATS):
            if i:
                repeat()
            in_folder, in_twin = (_opened(watch) for watch in self._watches)
            if not in_folder:
                return []
            names += in_folder
            surplus += len(in_folder) - len(in_twin)
        return [f"outside: {name}" for name in sorted(set(names))] if surplus >= REPEATS else []


def _watch(folder: Path) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    handle: int = libc.inotify_init1(os.O_NONBLOCK)
    for place in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        assert libc.inotify_add_watch(handle, os.fsencode(place), IN_OPEN) >= 0, os.strerror(ctypes.get_errno())
    return handle


def _opened(watch: int) -> list[str]:
    """Names of the files opened since the last call; a folder itself is the empty name."""
    names = []
    while True:
        try:
            events = os.read(watch, 1 << 16)
        except BlockingIOError:
            return names
        while events:
            (length,) = struct.unpack_from("I", events, 12)
            names.append(os.fsdecode(events[16 : 16 + length].rstrip(b"\0")))
            events = events[16 + length :]
