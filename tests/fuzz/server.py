"""One warm process that forks children, which run mutants and report the outcomes.

For each mutant the child copies the seeds, puts the mutant in place, and runs the command as `regard` would, within limits: CPU
time, memory above that of the warm process, and the size of the files it writes. Time is CPU time, so a busy machine changes
nothing. A child runs several mutants, because forking a process with torch in it costs as much as a command. If one of them
fails, it is run again in a child of its own, and that outcome counts.
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
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer.main

from regard import cli
from regard.tasks import code as code_task
from tests.fuzz.kinds import Kind

SECONDS = 5
"""CPU time of a mutant."""
BYTES_PER_SECOND = 10_000
"""What a model reads takes time: a second more for so many bytes on stdin."""
ROOM = 1 << 30
WAIT = 300
"""Seconds after which a mutant that computes nothing is one that waits for ever, however busy the machine is."""
CODES = {0, 1, 2, 3, 4, 5, 130, 143}
"""The exit codes that `errors.py` promises."""
SHARE = 25
"""Mutants per child."""
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
    """Whether two files hold the same JSON: a manifest may be spaced as one likes, nobody reads the README, and a folder
    without a plan for the engine runs on torch."""
    try:
        before, after = _list_files(json.loads(one)), _list_files(json.loads(other))
        spare = {"README.md"} | ({"engine.json"} - {*after})
        return bool({**before, **dict.fromkeys(spare)} == {**after, **dict.fromkeys(spare)})
    except (ValueError, RecursionError):
        return False


def _list_files(found: Any) -> dict[str, Any]:
    """The files that a manifest lists, or whatever else this is."""
    files = found.get("files") if isinstance(found, dict) else None
    return {**files, "": {**found, "files": None}} if isinstance(files, dict) else {"": found}


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
        some = code_task.list_library()[:10]
        code_task.list_library = lambda: (
            some
        )  # a recipe of code without data reads all of the standard library, for minutes
        gc.collect()
        gc.freeze()

    def run(self, case: Case) -> Outcome:
        """Run one case in a child of its own."""
        (outcome,) = self._fork([case])
        return outcome

    def run_all(self, cases: Sequence[Case]) -> Iterator[Outcome]:
        """Yield the outcomes in order; cases share children, and those that fail are run again alone."""
        done = 0
        while done < len(cases):
            for outcome in self._fork(cases[done : done + SHARE]):
                yield self.run(cases[done]) if outcome.fault else outcome
                done += 1

    def _fork(self, cases: Sequence[Case]) -> list[Outcome]:
        """Run cases in one child; returns the outcomes up to the one that ended the child, if any did."""
        home = Path(tempfile.mkdtemp(dir=self.scratch))
        sys.stdout.flush()
        child = os.fork()
        if not child:
            _child(cases, self.seeds, home, _resident())
        status = os.waitpid(child, 0)[1]
        report = home / "outcomes"
        outcomes = [Outcome(**json.loads(line)) for line in report.read_text().splitlines()] if report.exists() else []
        if len(outcomes) < len(cases):
            outcomes.append(_end_of(home, os.waitstatus_to_exitcode(status)))
        shutil.rmtree(home, ignore_errors=True)
        return outcomes


def _end_of(home: Path, code: int) -> Outcome:
    """The outcome of the case that ended its child."""
    texts = [_read(home / name) for name in ("out", "err")]
    return Outcome(_judge(code, *texts, 0, False, _has_trained(home / "case")), code, *texts, 0.0, 0)


def _read(path: Path) -> str:
    """What a command wrote to a stream, up to a megabyte."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        return file.read(1 << 20).decode(errors="backslashreplace")


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
    if memory > ROOM and not trained and "not enough memory for this run" not in err:  # a default model needs as much
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


def _child(cases: Sequence[Case], seeds: Path, home: Path, idle: int) -> None:
    """Run cases one after another and write their outcomes; never returns."""
    code = 99
    try:
        with (home / "outcomes").open("w") as report:
            for case in cases:
                report.write(json.dumps(asdict(_run_case(case, seeds, home, idle))) + "\n")
                report.flush()
        code = 0
    except BaseException:
        with (home / "err").open("a") as file:
            traceback.print_exc(file=file)
    finally:
        os._exit(code)


def _run_case(case: Case, seeds: Path, home: Path, idle: int) -> Outcome:
    """Build the mutant and run the command on it."""
    here = home / "case"
    here.mkdir()
    words, must_refuse = case.build(seeds, here)
    os.chdir(here)
    names = ("input.txt" if Path("input.txt").exists() else os.devnull, home / "out", home / "err")
    for number, name in enumerate(names):
        opened = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC if number else os.O_RDONLY)
        os.dup2(opened, number)
        os.close(opened)
    begun = _limit(SECONDS + os.fstat(0).st_size // BYTES_PER_SECOND)
    code = _main(words) & 0xFF
    _set_limit(resource.RLIMIT_AS, resource.RLIM_INFINITY)
    os.chdir(home)
    texts, seconds, memory = (
        [_read(home / name) for name in ("out", "err")],
        _cpu_time() - begun,
        max(0, _peak() - idle),
    )
    fault = _judge(code, *texts, memory, must_refuse, _has_trained(here))
    shutil.rmtree(here, ignore_errors=True)
    return Outcome(fault, code, *texts, seconds, memory)


def _limit(seconds: int) -> float:
    """Set the limits of one case; returns the CPU time used before."""
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    begun = _cpu_time()
    Path("/proc/self/clear_refs").write_text("5")  # the peak of memory begins anew
    _set_limit(resource.RLIMIT_AS, taken + ROOM + (ROOM >> 1))
    _set_limit(resource.RLIMIT_CPU, int(begun + seconds) + 1)
    _set_limit(resource.RLIMIT_FSIZE, ROOM >> 1)
    _set_limit(resource.RLIMIT_CORE, 0)
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(WAIT)
    return begun


def _set_limit(what: int, most: int) -> None:
    """Set what can be raised again for the next case."""
    resource.setrlimit(what, (most, resource.getrlimit(what)[1]))


def _cpu_time() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _peak() -> int:
    """The most memory since the limits were set."""
    found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


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
