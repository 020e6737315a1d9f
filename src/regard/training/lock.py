"""One writer a run: a lock the kernel holds for us and drops the moment the process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import IO

from regard.errors import RegardError
from regard.files.storage import DISK, explain_errors, make_folder

LOCK = "run.lock"
PATIENCE = 1.0
"""Seconds to wait for a lock. A process that was killed while it started another leaves its open files to that one for an
instant, and the lock with them."""


class RunLock:
    """`with RunLock(folder):` nobody else writes this run. Refuses when somebody already does.

    What counts is the kernel's lock on the open file, not that the file exists: one left by a killed process locks nothing.
    Who is refused before anything was written takes the folder away that was made for the lock.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self._held, self._made = ExitStack(), False

    def __enter__(self) -> RunLock:
        own = f"process {os.getpid()} on {socket.gethostname()}\n"
        with explain_errors("lock the run", self.folder, needed=len(own)), ExitStack() as opened:
            file = self._open(opened)
            while not _there(self.folder / LOCK, file):  # who held it took the folder away: this one locks nothing
                file = self._open(opened)
            file.truncate(0)
            file.write(own)
            file.flush()
            self._held = opened.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is not None and self._made:
            with suppress(OSError):  # a folder is no reason to hide the error
                if [path.name for path in self.folder.iterdir()] == [LOCK]:
                    (self.folder / LOCK).unlink()
                    self.folder.rmdir()
        self._held.close()

    def _open(self, opened: ExitStack) -> IO[str]:
        """The file that is there now, locked."""
        self._made = not self.folder.exists()
        make_folder(DISK, self.folder)
        file = opened.enter_context((self.folder / LOCK).open("a+", encoding="utf-8", errors="replace"))
        if not _locked(file):
            file.seek(0)
            holder = file.read(1000).strip() or "another process"
            raise RegardError(
                f"{self.folder} is being written by {holder}; wait until it ends, stop it, or choose another folder"
            )
        return file


def _there(path: Path, file: IO[str]) -> bool:
    """Whether this open file is the one at that path."""
    with suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    return False


def _locked(file: IO[str]) -> bool:
    """Whether we got the lock, within a moment."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(0.02)
        else:
            return True
