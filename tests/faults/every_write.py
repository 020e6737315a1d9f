"""Let every call that writes fail, one after the other: `python -m tests.faults.every_write`.

For every command of `writers.py` and for each of its system calls below its folder, n = 1, 2, 3, … until it makes no more:
the call fails (no space, an error of the disk, no descriptor), writes half, or the process is killed there. Then

    no silence        an error ends in words and an exit code, or the results are those of a command that nothing happened to
    nothing lost      the newest checkpoint that was complete is there, and what was a result stays one or is the new one
    nothing half      a folder with a manifest is complete; a half-written file is never where a result should be
    the same again    the same command again ends with the files of an undisturbed one, and leaves nothing else

Names of commands restrict it; `--every 7` takes each seventh point; `--short` is what the suite runs.
"""

from __future__ import annotations

import argparse
import errno
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults import inject
from tests.faults.inject import COUNT, ERROR, HALF, Call, Ended, Fault, Plan, run_command
from tests.faults.writers import WRITERS, Writer, completed_step, find_faults, newest_step, read_files, write_inputs

ROOT = Path(__file__).parents[2]
INSIDE = "REGARD_FAULTS_PLACE"
SHORT, SHORT_EVERY = ("train", "look"), 101
FORBIDDEN = ("Traceback", "unexpected", "--debug")


class Broken(Exception):
    """A promise was not kept."""


@dataclass
class Count:
    """What came of one writer."""

    calls: int = 0
    points: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)


class Trial:
    """One writer with its undisturbed run, to be disturbed at any call."""

    def __init__(self, name: str, writer: Writer, folder: Path, plan: Plan) -> None:
        self.name, self.writer, self.plan, self.place = name, writer, plan, folder / "place"
        self.template = folder / "template"
        self._make(folder / "empty")
        self._started(folder / "empty")
        for words in writer.before:
            self._demand_success(run_command(words, self.place))
        shutil.rmtree(self.template, ignore_errors=True)
        shutil.copytree(self.place, self.template)
        self.was = read_files(self.place)
        self.calls = self._learn()

    def _make(self, empty: Path) -> None:
        shutil.rmtree(empty, ignore_errors=True)
        write_inputs(empty)

    def _started(self, template: Path) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(template, self.place)
        (self.place / "tmp").mkdir(exist_ok=True)

    def _learn(self) -> list[Call]:
        """Run without a fault; returns its calls."""
        self._started(self.template)
        ended, calls = self._run()
        self._demand_success(ended)
        self.whole, self.out = read_files(self.place), ended.out
        if left := sorted(path.name for path in (self.place / "tmp").iterdir()):
            raise Broken(f"an undisturbed run leaves temporary files: {left}")
        return calls

    def _run(self, target: int = 0, fault: Fault | None = None) -> tuple[Ended, list[Call]]:
        self.plan.set(self.place, target=target, fault=fault)
        try:
            ended = run_command(self.writer.words, self.place)
        finally:
            self.plan.stop()
        return ended, self.plan.calls()

    def disturb(self, target: int, fault: Fault) -> str | None:
        """Let one call meet a fault; how the command ended, or None if it was not reached. Raises `Broken`."""
        self._started(self.template)
        ended, calls = self._run(target, fault)
        if not self.plan.hit:
            return None
        how = self._judge(ended, fault)
        self._look(ended, calls[: target - 1])
        if ended.code == 0:
            return how
        shutil.rmtree(self.place / "tmp")
        (self.place / "tmp").mkdir()
        self._demand_success(run_command(self.writer.words, self.place), "the same command again")
        self._compare("after the same command again")
        return how

    def _judge(self, ended: Ended, fault: Fault) -> str:
        """See that a fault is told."""
        if any(word in ended.err for word in FORBIDDEN):
            raise Broken(f"says {ended.err.strip()[-300:]!r}")
        if ended.code < 0:
            if fault.action in (ERROR, HALF.action, COUNT):
                raise Broken(f"ended by signal {-ended.code}: {ended.err.strip()[-300:]!r}")
            return "killed"
        if ended.code == 0:
            self._compare("with exit code 0", ended)
            return "went on"
        if fault.action == HALF.action:
            raise Broken(f"a half write is no error, and it ended with {ended.code}: {ended.err.strip()[-300:]!r}")
        if fault.action != ERROR and "its process ended" not in ended.err:
            raise Broken(f"a kill ended with {ended.code}: {ended.err.strip()[-300:]!r}")
        last = (ended.err.strip().splitlines() or [""])[-1]
        if not last.startswith("regard: "):
            raise Broken(f"ends with {ended.code} and without a message: {ended.err.strip()[-300:]!r}")
        if fault.action == ERROR:
            words = os.strerror(fault.error)
            if words not in last:
                raise Broken(f"the message does not say {words!r}: {last!r}")
            full = fault.error == errno.ENOSPC
            if (ended.code == 5) != full or (full and "make space and run the same command again" not in last):
                raise Broken(f"ends with {ended.code} and {last!r}")
        return "told"

    def _look(self, ended: Ended, done: Sequence[Call]) -> None:
        """Look at what a disturbed command leaves, before anything is put right."""
        if faults := find_faults(self.place):
            raise Broken(f"is taken for complete: {faults[0]}")
        now = read_files(self.place)
        for pattern in self.writer.results:
            for path in sorted(self.place.glob(pattern)):
                name = path.relative_to(self.place).as_posix()
                if not path.name.startswith(".") and now[name] not in (self.was.get(name), self.whole.get(name)):
                    raise Broken(f"{name} is neither the old one nor the new one")
        if (completed := completed_step(done)) and (found := newest_step(self.place)) < completed:
            raise Broken(f"the checkpoint of step {completed} was complete, and the newest is that of step {found}")

    def _compare(self, when: str, ended: Ended | None = None) -> None:
        now = read_files(self.place)
        if missing := sorted(self.whole.keys() - now.keys()):
            raise Broken(f"{when}: {', '.join(missing[:3])} missing")
        if more := sorted(now.keys() - self.whole.keys()):
            raise Broken(f"{when}: {', '.join(more[:3])} left over")
        if other := [name for name in now if now[name] != self.whole[name]]:
            raise Broken(f"{when}: {', '.join(other[:3])} differ")
        if ended is not None and not self.writer.timed and ended.out != self.out:
            raise Broken(f"{when}: prints {ended.out[-200:]!r} instead of {self.out[-200:]!r}")

    def _demand_success(self, ended: Ended, what: str = "undisturbed, it") -> None:
        if ended.code:
            raise Broken(f"{what} ended with {ended.code}: {ended.err.strip()[-400:]!r}")


def points(calls: Sequence[Call]) -> Iterator[tuple[int, Call, Fault]]:
    """Every call with every fault that it can meet."""
    for number, call in enumerate(calls, 1):
        for fault in call.faults:
            yield number, call, fault


def try_writer(name: str, folder: Path, plan: Plan, *, every: int = 1, first: int = 0) -> Count:
    """Disturb a writer at every point, or at each `every`-th."""
    count = Count()
    try:
        trial = Trial(name, WRITERS[name], folder, plan)
    except (Broken, AssertionError) as error:
        count.broken.append(f"{name}: {error}")
        return count
    count.calls = len(trial.calls)
    for number, call, fault in [*points(trial.calls)][first::every]:
        try:
            how = trial.disturb(number, fault)
        except (Broken, AssertionError) as error:
            count.points += 1
            count.broken.append(f"{name}: call {number} ({call.name} {call.path}), {fault.name}: {error}")
            print(count.broken[-1], file=sys.stderr, flush=True)
            continue
        count.points += how is not None
        count.ended[how or "not reached"] += 1
    return count


def run_inside(names: Sequence[str], every: int) -> int:
    """Disturb these writers, in a process that has the library preloaded; returns the number of broken promises."""
    import torch
    import torch._dynamo

    torch.set_num_threads(1)
    folder, plan = Path(os.environ[INSIDE]), Plan(Path(os.environ[inject.VARIABLE]))
    broken, total, calls = 0, 0, 0
    for n, name in enumerate(names):
        began = time.monotonic()
        place = folder / str(n)
        place.mkdir()
        count = try_writer(name, place, plan, every=every)
        said = ", ".join(f"{number} {how}" for how, number in sorted(count.ended.items()))
        print(f"{name:<28} {count.calls:>5} calls {count.points:>6} points {len(count.broken):>4} broken "
              f"{time.monotonic() - began:>7.0f} s   {said}", flush=True)  # fmt: skip
        broken, total, calls = broken + len(count.broken), total + count.points, calls + count.calls
        shutil.rmtree(place)
    print(f"{total} points at {calls} calls of {len(names)} commands, {broken} broken promises", flush=True)
    return broken


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.every_write", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="COMMAND", help=", ".join(WRITERS))
    parser.add_argument("--every", type=int, default=1, metavar="N", help="take each N-th point")
    parser.add_argument("--short", action="store_true", help="some points of few commands, in seconds")
    asked = parser.parse_args(words)
    if asked.short:
        asked.names, asked.every = [*SHORT], SHORT_EVERY
    if unknown := set(asked.names) - {*WRITERS}:
        parser.error(f"no command {', '.join(sorted(unknown))}; there is {', '.join(WRITERS)}")
    names = asked.names or [name for name, writer in WRITERS.items() if not writer.apart]
    if INSIDE in os.environ:
        return int(run_inside(names, asked.every) > 0)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # many small files, and none has to last
    with tempfile.TemporaryDirectory(prefix="regard-faults-", dir=memory) as place:
        folder = Path(os.path.realpath(place))
        library = inject.compile_calls(folder)
        if library is None:
            sys.exit("calls cannot be made to fail here: it needs Linux and a C compiler")
        environment = {**inject.environment(library, folder / "plan"), INSIDE: str(folder)}
        environment["PYTHONPATH"] = f"{ROOT / 'src'}{os.pathsep}{ROOT}"  # these sources, whatever is installed
        command = [sys.executable, "-m", "tests.faults.every_write", *asked.names, "--every", str(asked.every)]
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
