"""Child processes with limits of time and memory.

A child answers questions in JSON; at its limit it is ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

POLL_SECONDS = 0.05
"""Seconds between two checks of a child."""


class Stopped(Exception):
    """A child was ended or ended by itself; the message says why."""


class Child:
    """A module that runs as a process of its own; leaving the `with` block ends it."""

    def __init__(self, module: str, memory: int) -> None:
        """`memory` is its limit in bytes; 0: no limit."""
        self.memory = memory
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  what it complains about; closed with the child
        quiet = os.environ | {"KINETO_LOG_LEVEL": "9", "GLOG_minloglevel": "3"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, text=True,
            env=quiet, start_new_session=True,  # Ctrl-C is for us, and we end the child
        )  # fmt: skip
        self._answers: queue.Queue[str] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._listener.join()
        for stream in (self._process.stdin, self._process.stdout, self._said):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):  # a question that it will never read
                stream.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, question: Mapping[str, object], seconds: float) -> dict[str, Any]:
        """Its answer; raises `Stopped` if that takes too long or too much memory, or never comes."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Stopped(self._complaint()) from None
        end = time.monotonic() + seconds
        while True:
            try:
                line = self._answers.get(timeout=POLL_SECONDS)
            except queue.Empty:
                self._check(end, seconds)
                continue
            if not line:
                raise Stopped(self._complaint())
            answer: dict[str, Any] = json.loads(line)
            return answer

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def _check(self, end: float, seconds: float) -> None:
        if time.monotonic() > end:
            raise Stopped(f"it took longer than {seconds:.0f} s")
        if self.memory and (size := _resident(self.pid)) > self.memory:
            raise Stopped(f"it took {size / 2**30:.1f} GB of memory, and {self.memory / 2**30:.1f} GB is the limit")

    def _complaint(self) -> str:
        """Tell why it ended by itself, from the end of its stderr."""
        code = self._process.wait()
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return f"its process ended with code {code}" + (f": {lines[-1]}" if lines else "")


def _resident(pid: int) -> int:
    """Resident memory of a process in bytes; 0 if unknown."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return 0
    return int(pages) * resource.getpagesize()
