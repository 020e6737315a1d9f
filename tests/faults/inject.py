"""Faults in system calls, and commands that meet them.

`calls.c` is compiled and preloaded into a process that has imported everything once, and forks a child for every command. A
`Plan` is memory that all of them share: which call fails and how, and what was called so far.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import mmap
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.engine.compile_library import find_compiler

SOURCE = Path(__file__).with_name("calls.c")
VARIABLE = "REGARD_FAULTS"
COUNT, ERROR, SHORT, KILL, TORN = range(5)
HEAD = struct.Struct("9q256s")
ROW = struct.Struct("12si240s")
CALLS = 16384
HANG = 120
"""Seconds after which a command that has not ended counts as hanging."""


@dataclass(frozen=True)
class Fault:
    """What happens at a call: its `action`, the error, and whether every later call that writes fails as well."""

    name: str
    action: int
    error: int = 0
    lasting: bool = False


ENOSPC = Fault("ENOSPC", ERROR, errno.ENOSPC)
FULL = Fault("full from here on", ERROR, errno.ENOSPC, lasting=True)
EIO = Fault("EIO", ERROR, errno.EIO)
EMFILE = Fault("EMFILE", ERROR, errno.EMFILE)
HALF = Fault("half written", SHORT)
KILLED = Fault("killed before", KILL)
TORN_WRITE = Fault("killed half written", TORN)
FAULTS: dict[str, tuple[Fault, ...]] = {
    "open": (EMFILE,),
    "open-write": (EMFILE, EIO, KILLED),
    "create": (EMFILE, ENOSPC, KILLED),
    "write": (ENOSPC, FULL, EIO, HALF, TORN_WRITE),
    "mkdir": (ENOSPC, KILLED),
    "rename": (ENOSPC, EIO, KILLED),
}
OTHERS = (EIO, KILLED)
"""Faults of calls that are not named above: fsync, unlink, rmdir, truncate and so on."""


@dataclass(frozen=True)
class Call:
    """A call that was made below the watched folder."""

    name: str
    writes: bool
    path: str

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The faults that this call can meet."""
        return FAULTS.get(self.name, OTHERS)


class Plan:
    """The memory that `calls.c` reads and writes."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(HEAD.size + CALLS * ROW.size))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)

    def set(
        self, root: Path, *, armed: bool = True, target: int = 0, fault: Fault | None = None,
        offset: int = 0, room: int = -1,
    ) -> None:  # fmt: skip
        """Begin to count, and let call number `target` meet the fault."""
        action, error, lasting = (fault.action, fault.error, fault.lasting) if fault else (COUNT, 0, False)
        self._memory[HEAD.size :] = bytes(len(self._memory) - HEAD.size)
        HEAD.pack_into(
            self._memory, 0, armed, 0, target, action, error, lasting, 0, offset, room, os.fsencode(root)
        )  # fmt: skip

    def stop(self) -> None:
        """Count no more."""
        struct.pack_into("q", self._memory, 0, 0)

    def jump(self, seconds: int) -> None:
        """Let the clock on the wall be so many seconds ahead from now on."""
        struct.pack_into("q", self._memory, 7 * 8, seconds)

    @property
    def hit(self) -> bool:
        """Whether the fault was met."""
        return bool(HEAD.unpack_from(self._memory)[6])

    @property
    def count(self) -> int:
        """How many calls were made."""
        return int(HEAD.unpack_from(self._memory)[1])

    def calls(self) -> list[Call]:
        """What was called, in order."""
        made = self.count
        if made > CALLS:
            raise RuntimeError(f"{made} calls, more than the {CALLS} that fit")
        rows = (ROW.unpack_from(self._memory, HEAD.size + n * ROW.size) for n in range(made))
        return [Call(_text(name), bool(writes), _text(path)) for name, writes, path in rows]


def _text(data: bytes) -> str:
    return os.fsdecode(data.split(b"\0")[0])


def compile_calls(folder: Path) -> Path | None:
    """Compile the library; None where it cannot be: it needs Linux and a compiler."""
    compiler = find_compiler() if sys.platform == "linux" else None
    if compiler is None:
        return None
    out = folder / "calls.so"
    subprocess.run([*compiler, "-x", "c", "-shared", "-fPIC", "-O2", str(SOURCE), "-o", str(out), "-ldl"], check=True)
    return out


def environment(library: Path, plan: Path) -> dict[str, str]:
    """The environment of a process whose calls can meet faults."""
    Plan(plan)
    return {**os.environ, "LD_PRELOAD": str(library), VARIABLE: str(plan), "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false"}  # fmt: skip


@dataclass(frozen=True)
class Ended:
    """How a command ended; a signal is a negative code."""

    code: int
    out: str
    err: str
    seconds: float


def run_command(words: Sequence[str], place: Path) -> Ended:
    """Run `regard` with these words in a folder, in a child of this process.

    What it imports is imported here afterwards, so that the next one need not.
    """
    said = [place.with_name(f"{place.name}.{name}") for name in ("out", "err")]
    began = time.monotonic()
    child = os.fork()
    if not child:
        _be_command(words, place, said)
    code = _wait(child)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what it started and left
    _import_too(place.with_name(f"{place.name}.modules"))
    return Ended(code, *(path.read_text(errors="replace") for path in said), time.monotonic() - began)


def _import_too(path: Path) -> None:
    if path.exists():
        for name in path.read_text().split():
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        path.unlink()


def _wait(child: int) -> int:
    end = time.monotonic() + HANG
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError(f"it hangs: no end within {HANG} s")


def _be_command(words: Sequence[str], place: Path, said: Sequence[Path]) -> None:
    """Become the command line; never returns."""
    code, known = 70, {*sys.modules}
    try:
        os.setpgid(0, 0)
        os.chdir(place)
        os.environ["TMPDIR"], tempfile.tempdir = str(place / "tmp"), None
        for number, path in zip((1, 2), said, strict=True):
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdin, sys.stdout, sys.stderr = (
            io.TextIOWrapper(open(n, mode, closefd=False), encoding="utf-8")  # noqa: SIM115
            for n, mode in ((0, "rb"), (1, "wb"), (2, "wb"))
        )
        sys.argv = ["regard", *words]
        from regard.__main__ import main

        try:
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        if more := [
            name for name in sys.modules if name not in known and name.startswith(("regard", "torch.", "numpy."))
        ]:
            place.with_name(f"{place.name}.modules").write_text("\n".join(more))
    finally:
        os._exit(code)
