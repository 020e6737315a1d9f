"""A child process that answers questions in JSON, watched while it works: at its limit of time or memory it is ended."""

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
from pathlib import Path
from typing import Any, Self

LOOK = 0.05
"""Seconds between two looks at a child."""


class Stopped(Exception):
    """A child was ended, or ended; says why."""


def grown() -> int:
    """The most bytes of memory this process ever had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


class Child:
    """A module run as a process of its own; leaving the `with` ends it, whatever happened."""

    def __init__(self, module: str, memory: int) -> None:
        """`memory` is what it may have, in bytes; 0 for as much as there is."""
        self.memory = memory
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  what it complains about; closed with the child
        quiet = os.environ | {"KINETO_LOG_LEVEL": "9", "GLOG_minloglevel": "3"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, text=True,
            env=quiet, start_new_session=True,  # Ctrl-C comes to us, and we end it
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
            with contextlib.suppress(BrokenPipeError):  # a question it will never hear
                stream.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, question: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Its answer; `Stopped` where that takes longer, or more memory than it may have, or never comes."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Stopped(self._complaint()) from None
        end = time.monotonic() + seconds
        while True:
            try:
                line = self._answers.get(timeout=LOOK)
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
        """Why it ended by itself, in its own last words."""
        code = self._process.wait()
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return f"its process ended with code {code}" + (f": {lines[-1]}" if lines else "")


def _resident(pid: int) -> int:
    """Bytes of memory a process has now; 0 where the system does not say."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return 0
    return int(pages) * resource.getpagesize()
