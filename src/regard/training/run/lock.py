"""One writer per run or study, by a lock of the kernel.

The kernel drops the lock when the process ends, however it ends.
"""

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
"""Seconds to wait for a lock. The child of a killed process may hold its files, and with them the lock, for an instant."""


class RunLock:
    """`with RunLock(folder):` nobody else can write this run. Raises if another process already does.

    What counts is the lock on the open file, not its existence: a file left by a killed process locks nothing. If the block
    fails before anything is written, the file and the folders made for it are removed.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self._held, self._made = ExitStack(), list[Path]()

    def __enter__(self) -> RunLock:
        own = f"process {os.getpid()} on {socket.gethostname()}\n"
        with explain_errors("lock the run", self.folder, needed=len(own)), ExitStack() as opened:
            file = self._open(opened)
            while not _is_current(self.folder / LOCK, file):  # its holder removed the folder: this file locks nothing
                file = self._open(opened)
            file.truncate(0)
            file.write(own)
            file.flush()
            self._held = opened.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is not None:
            with suppress(OSError):  # do not hide the error; others may have put something there
                if [path.name for path in self.folder.iterdir()] == [LOCK]:
                    (self.folder / LOCK).unlink()
                    for folder in self._made:
                        folder.rmdir()
        self._held.close()

    def _open(self, opened: ExitStack) -> IO[str]:
        """Open and lock the current lock file."""
        self._made = [path for path in (self.folder, *self.folder.parents) if not path.exists()]
        make_folder(DISK, self.folder)
        file = opened.enter_context((self.folder / LOCK).open("a+", encoding="utf-8", errors="replace"))
        if not _acquire(file):
            file.seek(0)
            holder = file.read(1000).strip() or "another process"
            raise RegardError(
                f"{self.folder} is being written by {holder}; wait until it ends, stop it, or choose another folder"
            )
        return file


def _is_current(path: Path, file: IO[str]) -> bool:
    """True if this open file is still the one at the path."""
    with suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    return False


def _acquire(file: IO[str]) -> bool:
    """Try for a moment to get the lock."""
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
