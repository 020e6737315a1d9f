"""Open folders that mean harm, in a process that is watched: `python -m tests.hostile.attempt` reads what to open from stdin.

audit hook    what Python opens, unpickles, starts or connects to
inotify       whether anybody, libraries and children too, opens a file in the place outside that no folder may reach
bounds        1 GB of memory beyond what the libraries take; a hang ends in an error
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import regard
import regard.convert.gguf
import regard.convert.hf
import regard.convert.task_config
import regard.verbs.convert
from regard.errors import RegardError
from regard.text import sandbox

ROOM = 1 << 30
HANG = 60
IN_ACCESS, IN_OPEN = 0x1, 0x20
STARTS = ("os.system", "os.exec", "os.fork", "os.posix_spawn", "os.startfile", "pickle.find_class", "socket.connect",
          "ftplib.connect", "urllib.Request", "ctypes.dlopen")  # fmt: skip
OURS = [os.path.realpath(p) for p in (sys.prefix, sys.base_prefix, Path(regard.__file__).parents[2], "/proc", "/sys")]


class Watch:
    """Everything that was done since it was last asked and should not have been."""

    def __init__(self, outside: Path) -> None:
        self.found: list[str] = []
        self.allowed: list[str] = [*OURS, tempfile.gettempdir() + "/regard-"]
        self.folder = ""
        libc = ctypes.CDLL(None, use_errno=True)
        self._handle = libc.inotify_init1(os.O_NONBLOCK)
        for place in (outside, *(p for p in outside.rglob("*") if p.is_dir())):
            assert libc.inotify_add_watch(self._handle, os.fsencode(place), IN_ACCESS | IN_OPEN) >= 0
        sys.addaudithook(self._heard)

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.folder:
            return
        if event in STARTS or (event == "subprocess.Popen" and str(sandbox._CHILD) not in arguments[1]):
            self.found.append(f"{event} {arguments!r:.200}")
        if event == "open" and isinstance(arguments[0], str | bytes):
            path = os.fsdecode(arguments[0])
            where = Path(path).parent if arguments[2] & os.O_NOFOLLOW else path  # a link itself is not followed
            path = os.path.realpath(where)
            if not path.startswith((self.folder, *self.allowed)) and path != os.devnull:
                self.found.append(f"open {path}")

    def told(self) -> list[str]:
        try:
            events = os.read(self._handle, 1 << 16)
        except BlockingIOError:
            events = b""
        said, self.found = self.found + ([f"outside: {events[16:80]!r}"] if events else []), []
        return said


def convert(path: Path) -> None:
    """All that `regard convert` reads of a folder of others."""
    regard.convert.task_config.carried(regard.convert.hf.read(path), path)


WAYS: dict[str, Callable[[Path], Any]] = {"ours": regard.load, "hf": convert, "gguf": regard.convert.gguf.read}


def attempt(way: str, path: Path, watch: Watch) -> dict[str, Any]:
    """What came of opening a folder."""
    before, began = _computed(), time.monotonic()
    watch.folder = os.path.realpath(path)
    signal.alarm(HANG)
    try:
        WAYS[way](path)
        kind, code, said = "opened", 0, ""
    except BaseException as error:
        kind, code, said = type(error).__name__, error.exit_code if isinstance(error, RegardError) else -1, str(error)
    signal.alarm(0)
    watch.folder = ""
    return {"error": kind, "code": code, "said": said[:2000], "seconds": _computed() - before,
            "wall": time.monotonic() - began, "done": watch.told()}  # fmt: skip


def _computed() -> float:
    """Seconds that a free core would have taken, children's too."""
    use = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in use)


def _hang(*_: object) -> None:
    raise TimeoutError(f"not refused within {HANG} seconds")


def main() -> None:
    asked = json.load(sys.stdin)
    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, _hang)
    for way, path in asked["honest"]:  # everything that is imported late is imported now
        WAYS[way](Path(path))
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + ROOM, resource.RLIM_INFINITY))
    watch = Watch(Path(asked["outside"]))
    for name, way, path in asked["folders"]:
        print(json.dumps({"name": name, **attempt(way, Path(path), watch)}), flush=True)


if __name__ == "__main__":
    main()
