"""One warm process that forks a child for every mutant, and says what came of it.

The child copies the seeds, puts the mutant in place, and runs the command as `regard` would. It has bounds: CPU time, memory
above what the warm process has, and the size of what it writes. Time is CPU time, so that a busy machine does not lie.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import random
import re
import resource
import shlex
import shutil
import signal
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer.main

from regard import cli
from tests.fuzz.kinds import Kind

SECONDS = 5
ROOM = 1 << 30
WAIT = 300
"""Seconds after which a mutant that computes nothing is one that waits for ever, however busy the machine is."""
CODES = {0, 1, 2, 3, 4, 5, 130, 143}
"""The exit codes that `errors.py` promises."""
COPIED = ("model/", "run/")
"""Folders that a command may write to; all other files are linked."""


@dataclass(frozen=True)
class Case:
    """A mutant by number; everything else follows from the seed."""

    kind: Kind
    seed: int
    number: int

    @property
    def draw(self) -> random.Random:
        return random.Random(f"{self.seed} {self.kind.name} {self.number}")

    def build(self, seeds: Path, here: Path) -> tuple[list[str], bool]:
        """Copy the seeds to a folder with the mutant in place; returns the command, and whether it must be refused."""
        draw = self.draw
        command = shlex.split(draw.choice(self.kind.commands))
        seal = bool(self.kind.folder) and not self.kind.file.endswith("manifest.json") and draw.random() < 0.6
        copy_seeds(seeds / self.kind.seed, here)
        place = here / self.kind.file
        before = place.read_bytes() if place.exists() else b""
        after = self.kind.mutate(before, draw)
        if self.kind.name == "arguments":
            return json.loads(after), False
        place.unlink()
        place.write_bytes(after)
        if seal:
            _seal(here / self.kind.folder)
        changed = before != after and not _same_json(before, after)
        return command, self.kind.strict and not seal and changed


@dataclass(frozen=True)
class Outcome:
    """What a command did with a mutant."""

    fault: str
    """Empty if it did what it may do."""
    code: int
    out: str
    err: str
    seconds: float
    memory: int

    @property
    def word(self) -> str:
        return self.fault or ("done" if self.code == 0 else f"refused ({self.code})")


def copy_seeds(source: Path, here: Path) -> None:
    """Copy a folder of seeds; files that no command writes are linked."""
    for folder, _, files in os.walk(source):
        place = here / os.path.relpath(folder, source)
        place.mkdir(exist_ok=True)
        for name in files:
            inner = os.path.relpath(f"{folder}/{name}", source)
            if inner.startswith(COPIED):
                shutil.copyfile(f"{folder}/{name}", place / name)
            else:
                os.link(f"{folder}/{name}", place / name)


def _seal(folder: Path) -> None:
    files = {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.is_file() and p.name != "manifest.json"}
    said = {name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()}
    (folder / "manifest.json").write_text(json.dumps({"files": said}))


def _same_json(one: bytes, other: bytes) -> bool:
    """Whether two files hold the same JSON: a manifest may be spaced as one likes, and nobody reads the README."""
    try:
        return bool(_drop_readme(json.loads(one)) == _drop_readme(json.loads(other)))
    except (ValueError, RecursionError):
        return False


def _drop_readme(found: Any) -> Any:
    files = found.get("files") if isinstance(found, dict) else None
    return {**found, "files": {**files, "README.md": None}} if isinstance(files, dict) else found


class Server:
    """Runs cases, each in a forked child."""

    def __init__(self, seeds: Path, scratch: Path) -> None:
        self.seeds, self.scratch = seeds, scratch
        scratch.mkdir(parents=True, exist_ok=True)

    def warm(self, kinds: list[Kind], *, quick: bool = False) -> None:
        """Run every command on its honest file in this process: it must succeed, and what it imports stays.

        `quick` runs each verb once for each folder of seeds.
        """
        honest = {(kind.seed, command): kind for kind in kinds for command in kind.commands if command}
        if quick:
            chosen = {(seed, command.split()[0]): (seed, command) for seed, command in honest}
            honest = {key: honest[key] for key in chosen.values()}
        failed = []
        for (_, command), kind in honest.items():
            here = Path(tempfile.mkdtemp(dir=self.scratch))
            copy_seeds(self.seeds / kind.seed, here)
            code, said = _run_here(shlex.split(command), here)
            shutil.rmtree(here)
            if code not in (0, None) and not _may_refuse(command, kind):
                failed.append(f"{kind.name}: {command} on honest files: {code} {said}")
        assert not failed, "\n".join(failed)
        command_line = typer.main.get_command(cli.app)  # making it would be half of what a refused mutant costs
        typer.main.get_command = lambda _: command_line
        gc.collect()
        gc.freeze()

    def run(self, case: Case) -> Outcome:
        here = Path(tempfile.mkdtemp(dir=self.scratch))
        out, err = (tempfile.TemporaryFile(dir=self.scratch) for _ in range(2))  # noqa: SIM115
        idle = _resident()
        sys.stdout.flush()
        child = os.fork()
        if not child:
            _child(case, self.seeds, here, out.fileno(), err.fileno())
        _, status, used = os.wait4(child, 0)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read(1 << 20).decode(errors="backslashreplace"))
            file.close()
        must_refuse = (here / ".must-refuse").exists()
        trained = _has_trained(here)
        shutil.rmtree(here, ignore_errors=True)
        code = os.waitstatus_to_exitcode(status)
        memory = max(0, used.ru_maxrss * 1024 - idle)
        return Outcome(
            _judge(code, *texts, memory, must_refuse, trained), code, *texts, used.ru_utime + used.ru_stime, memory
        )


def _judge(code: int, out: str, err: str, memory: int, must_refuse: bool, trained: bool) -> str:
    """What is wrong with an outcome, in a word or two."""
    if code in (-signal.SIGXCPU, -signal.SIGALRM, -signal.SIGKILL):
        return "" if trained else "hang"
    if code < 0:
        return f"signal {-code}"
    if re.search(r"^regard: unexpected ", err, flags=re.M):
        return "unexpected"
    if "Traceback (most recent" in err or "Traceback (most recent" in out:
        return "traceback"
    if "panicked at" in err:
        return "panic"
    if code not in CODES:
        return f"code {code}"
    if memory > ROOM:
        return "memory"
    if must_refuse and code == 0:
        return "accepted"
    if code not in (0, 1) and not err.strip():
        return "silent"
    if any(not line.isprintable() for line in err.split("\n")):
        return "raw text"
    if len(err) > 20_000:
        return "long text"
    return ""


def _may_refuse(command: str, kind: Kind) -> bool:
    """Some models have no such use: what embeds texts has no other format to go to."""
    return command.startswith(("convert model", "run model --glossary")) or kind.seed == "pictures"


def _has_trained(here: Path) -> bool:
    """Whether a run took a step: then it is not stuck, it was asked for a long run."""
    return any('"step"' in path.read_text(errors="replace") for path in here.glob("*/log.jsonl"))


def _run_here(words: list[str], here: Path) -> tuple[int | None, str]:
    """`regard WORDS` in this process."""
    from tests.verbs.calling import call

    before = Path.cwd()
    os.chdir(here)
    try:
        stdin = Path("input.txt").read_bytes() if Path("input.txt").exists() else b""
        said = call(*words, stdin=stdin)
    finally:
        os.chdir(before)
    return said.code, said.err[-500:]


def _child(case: Case, seeds: Path, here: Path, out: int, err: int) -> None:
    """Build the mutant and run the command on it; never returns."""
    code = 99
    try:
        words, must_refuse = case.build(seeds, here)
        if must_refuse:
            (here / ".must-refuse").touch()
        os.chdir(here)
        given = os.open("input.txt" if Path("input.txt").exists() else os.devnull, os.O_RDONLY)
        for number, fd in enumerate((given, out, err)):
            os.dup2(fd, number)
        _limit()
        code = _main(words)
    except BaseException:
        os.write(err, traceback.format_exc().encode(errors="backslashreplace"))
    finally:
        os._exit(code & 0xFF)


def _limit() -> None:
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    used = resource.getrusage(resource.RUSAGE_SELF)
    begun = used.ru_utime + used.ru_stime
    resource.setrlimit(resource.RLIMIT_AS, (taken + ROOM + (ROOM >> 1),) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (int(begun + SECONDS) + 1, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM >> 1,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(WAIT)


def _main(words: list[str]) -> int:
    """The command line as a process of its own would run it."""
    from regard.__main__ import main

    sys.argv = ["regard", *words]
    streams = [open(number, "w" if number else "r", closefd=False) for number in range(3)]  # noqa: SIM115
    sys.stdin, sys.stdout, sys.stderr = streams
    code: object = 0
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return code if isinstance(code, int) else 1


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
