"""Open hostile folders in a process that is watched.

`python -m tests.hostile.attempt` reads from stdin what to open.

audit hook    what Python opens, unpickles, starts or connects to
inotify       files that libraries and children open in the folder outside that no model folder may reach (see `Openings`)
bounds        1 GB of memory beyond what the libraries take; a hang ends in an error
"""

from __future__ import annotations

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
import regard.conversion.convert
import regard.conversion.gguf
import regard.conversion.hf
import regard.conversion.task_config
from regard.errors import RegardError
from regard.text import sandbox
from tests.hostile.openings import Openings

ROOM = 1 << 30
HANG = 60
STARTS = ("os.system", "os.exec", "os.fork", "os.posix_spawn", "os.startfile", "pickle.find_class", "socket.connect",
          "ftplib.connect", "urllib.Request", "ctypes.dlopen")  # fmt: skip
LIBRARIES = [path for path in sys.path[1:] if path]  # wherever they are installed; the first is the current folder
ALLOWED = (*LIBRARIES, sys.prefix, sys.base_prefix, Path(regard.__file__).parents[2], "/proc", "/sys")
OURS = [os.path.realpath(path) for path in ALLOWED]


class Watch:
    """Records everything that Python does while a folder is open and should not do."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.allowed: list[str] = [*OURS, tempfile.gettempdir() + "/regard-"]
        self.folder = ""
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


def convert(path: Path) -> None:
    """All that `regard convert` reads of a folder of others."""
    regard.conversion.task_config.make_task(regard.conversion.hf.read(path), path)


WAYS: dict[str, Callable[[Path], Any]] = {"ours": regard.load, "hf": convert, "gguf": regard.conversion.gguf.read}


def attempt(way: str, path: Path, watch: Watch, openings: Openings) -> dict[str, Any]:
    """Open a folder and report the outcome."""
    watch.found = []
    before, began = _computed(), time.monotonic()
    kind, code, said = _open(way, path, watch)
    taken = {"seconds": _computed() - before, "wall": time.monotonic() - began}
    reached = openings.blame(lambda: _open(way, path, watch))
    return {"error": kind, "code": code, "said": said[:2000], **taken, "done": watch.found + reached}


def _open(way: str, path: Path, watch: Watch) -> tuple[str, int, str]:
    watch.folder = os.path.realpath(path)
    signal.alarm(HANG)
    try:
        WAYS[way](path)
        return "opened", 0, ""
    except BaseException as error:
        return type(error).__name__, error.exit_code if isinstance(error, RegardError) else -1, str(error)
    finally:
        signal.alarm(0)
        watch.folder = ""


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
    watch, openings = Watch(), Openings(Path(asked["outside"]), Path(asked["twin"]))
    for name, way, path in asked["folders"]:
        print(json.dumps({"name": name, **attempt(way, Path(path), watch, openings)}), flush=True)


if __name__ == "__main__":
    main()
