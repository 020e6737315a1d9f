"""Render a chat template in a child process with limits.

A template is a program of a stranger. Loops, `'a' * n`, formats with a width, `center`, `tojson(indent=n)`, doubling in a
namespace and deep brackets take any time and memory inside of one call of C, which nothing in the same process can interrupt;
a list of forbidden operations is never complete. The limits of another process hold for all of them.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path

import jinja2
import markupsafe

SECONDS = 2.0
"""Time of the processor for one conversation, or to read the template; real ones take some milliseconds."""
WAIT = 30.0
"""Seconds in total, on a busy machine."""
MEMORY = 256 << 20
"""Bytes of the process; real ones take about 40 MB."""
MAX_TEXT = 1_000_000
"""Characters of a conversation that is written out."""
_CHILD = Path(__file__).with_name("template_child.py")
_LATE = "it takes too much time"
_ENDS = {
    -signal.SIGKILL: _LATE,
    -signal.SIGSEGV: "it makes the template engine crash",
    -signal.SIGABRT: "it needs too much memory",
}
if hasattr(signal, "SIGPROF"):
    _ENDS[-signal.SIGPROF] = _LATE


class TemplateFault(Exception):
    """Error of the template, or of the template engine."""


class TemplateProcess:
    """A child process that has read one template. It is started again when it has ended."""

    def __init__(self, source: str) -> None:
        self._source, self._lock = source, threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        with self._lock:
            self._start()

    def render(self, **given: object) -> str:
        """The text for these variables, or a TemplateFault."""
        with self._lock:
            if self._child is None:
                self._start()
            return self._ask(given)

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _start(self) -> None:
        packages = os.pathsep.join(str(Path(str(each.__file__)).parents[1]) for each in (jinja2, markupsafe))
        order = [sys.executable, "-I", "-S", str(_CHILD), packages, str(SECONDS), str(MEMORY), str(MAX_TEXT)]
        pipe = subprocess.PIPE
        self._child = subprocess.Popen(order, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        weakref.finalize(self, _kill, self._child)
        self._ask({"source": self._source})

    def _ask(self, given: dict[str, object]) -> str:
        child = self._child
        assert child is not None and child.stdin is not None
        try:
            child.stdin.write(json.dumps(given).encode() + b"\n")
            child.stdin.flush()
            answer = _read_line(child)
        except OSError:
            answer = None
        if answer is None:
            raise TemplateFault(self._end())
        found = json.loads(answer)
        if "fault" in found:
            raise TemplateFault(found["fault"])
        return str(found["text"])

    def _end(self) -> str:
        """End the process; returns why it had to."""
        child, self._child = self._child, None
        if child is None:
            return ""
        try:
            code = child.wait(0.5)  # it may have ended by itself
        except subprocess.TimeoutExpired:
            child.kill()
            code = child.wait()
        _kill(child)
        return _ENDS.get(code, f"its process ended with {code}")


def _read_line(child: subprocess.Popen[bytes]) -> bytes | None:
    """The next line that a child writes; None if it ends or takes too long."""
    assert child.stdout is not None
    parts, end = list[bytes](), time.monotonic() + WAIT
    while not (parts and parts[-1].endswith(b"\n")):
        left = end - time.monotonic()
        if left <= 0 or not select.select([child.stdout], [], [], left)[0]:
            return None
        parts.append(os.read(child.stdout.fileno(), 1 << 16))
        if not parts[-1]:
            return None
    return b"".join(parts)


def _kill(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with suppress(OSError):  # what could not be written any more
                pipe.close()
