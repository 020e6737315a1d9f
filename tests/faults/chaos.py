"""Use one machine as badly as one can, for hours: `python -m tests.faults.chaos --minutes 120`.

It trains and resumes, serves, swaps models under the server, studies and converts, all at once on one core. Beside that

    kill      SIGKILL, SIGTERM or SIGINT at a random moment, or SIGKILL at a random call that writes
    disk      no room after so many bytes, or one call that fails (see `inject.py`); a limit of the size of files
    clock     the time of day is years off, and jumps
    limits    few descriptors, little memory
    threads   another number: refused by name, or the same results

Every command is given again until it is left alone, and must end as an undisturbed one. Counted are broken promises:

    lost       a checkpoint or result that was complete is gone
    different  other bytes than those of an undisturbed command
    silent     a failure with exit code 0 or without a message, or no end
    unclear    a traceback, "unexpected", or a signal that nobody sent

The figures are written now and then, and with `--record` to results/. Whatever it starts has its folder in its environment, and
is found by that and ended.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.faults import inject
from tests.faults.inject import CALLS, EIO, EMFILE, ENOSPC, FULL, KILLED, Call, Fault, Plan
from tests.faults.serving import Swapped
from tests.faults.writers import RECIPES, completed_step, find_faults, newest_step, read_files, write_inputs

ROOT = Path(__file__).parents[2]
LONGER: dict[str, Any] = {"steps": 24, "save_every": 3, "validate_every": 6}
SLOTS = 2
"""Commands at once, beside the server."""
LIVES = 4
"""How often a command is disturbed before it is left alone, at most."""
HANG = 1800
"""Seconds after which a command counts as hanging: the machine may be busy."""
YEARS = 86400 * 365
PROMISES = ("lost", "different", "silent", "unclear")


@dataclasses.dataclass(frozen=True)
class Command:
    """A command, what it needs in its folder beforehand, and its undisturbed run."""

    words: tuple[str, ...]
    before: tuple[tuple[str, ...], ...] = ()


def _train(recipe: str, *more: str) -> tuple[str, ...]:
    return ("train", f"{recipe}.yaml", "--out", "run", "--quiet", *more)


COMMANDS: dict[str, Command] = {
    "train": Command(_train("copy")),
    "train on files": Command((*_train("pairs"), "pairs.tsv")),
    "train and keep tokens": Command(_train("mlm")),
    "study": Command(
        ("study", "compare", "plain.yaml", "wide.yaml", "--seeds", "2", "--processes", "1", "--out", "study")
    ),
    "convert": Command(("convert", "run", "hf", "--to", "hf"), (_train("lm"),)),
}


@dataclasses.dataclass(frozen=True)
class Disturbance:
    """What happens to one life of a command."""

    kind: str
    fault: Fault | None = None
    target: float = 0.0
    """The call that meets the fault, as a part of those of an undisturbed run."""
    room: int = -1
    offset: int = 0
    signal: int = 0
    moment: float = 0.0
    """When the signal comes or the clock jumps, as a part of the time of an undisturbed run."""
    limits: tuple[tuple[int, int], ...] = ()
    more: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


def choose(draw: random.Random) -> Disturbance:
    """Choose what happens next."""
    moment, target = draw.uniform(0, 1.1), draw.uniform(0, 1)
    return draw.choice(
        [
            *(Disturbance(signal.Signals(number).name, signal=number, moment=moment)
              for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)),
            Disturbance("SIGKILL at a call", KILLED, target),
            Disturbance("SIGKILL at a call", KILLED, target),
            Disturbance("full disk", FULL, target),
            Disturbance("full disk", room=int(10 ** draw.uniform(2, 6))),
            Disturbance("call fails", draw.choice([ENOSPC, EIO, EMFILE]), target),
            Disturbance("clock", offset=draw.choice([-50, -1, 1, 12]) * YEARS, moment=moment),
            Disturbance("descriptors", limits=((resource.RLIMIT_NOFILE, draw.randrange(10, 64)),)),
            Disturbance("memory", limits=((resource.RLIMIT_AS, draw.randrange(1 << 30, 6 << 30)),)),
            Disturbance("file size", limits=((resource.RLIMIT_FSIZE, int(10 ** draw.uniform(2, 6))),)),
            Disturbance("threads", more=("--set", "train.threads=2")),
            Disturbance("threads", environment=(("OMP_NUM_THREADS", "2"),)),
        ]
    )  # fmt: skip


@dataclasses.dataclass
class Figures:
    """What was done and which promises were kept, shared by all threads."""

    lives: Counter[str] = dataclasses.field(default_factory=Counter)
    disturbed: Counter[str] = dataclasses.field(default_factory=Counter)
    ended: Counter[str] = dataclasses.field(default_factory=Counter)
    stories: Counter[str] = dataclasses.field(default_factory=Counter)
    broken: Counter[str] = dataclasses.field(default_factory=Counter)
    answers: Counter[str] = dataclasses.field(default_factory=Counter)
    told: list[str] = dataclasses.field(default_factory=list)
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock, repr=False)

    def count(self, where: Counter[str], what: str) -> None:
        with self.lock:
            where[what] += 1

    def fail(self, promise: str, said: str) -> None:
        """Count a broken promise."""
        with self.lock:
            self.broken[promise] += 1
            self.told.append(f"{promise}: {said}")
        print(f"BROKEN {promise}: {said}", file=sys.stderr, flush=True)

    def plain(self) -> dict[str, Any]:
        with self.lock:
            rows = {name: dict(sorted(getattr(self, name).items()))
                    for name in ("stories", "lives", "disturbed", "ended", "answers")}  # fmt: skip
            return {"promises": {name: self.broken[name] for name in PROMISES}, **rows, "told": self.told[-100:]}


@dataclasses.dataclass(frozen=True)
class Life:
    """One process of a command that has ended."""

    code: int
    err: str
    calls: list[Call]
    seconds: float
    signalled: bool


class Machine:
    """The folder of everything, and the processes in it."""

    def __init__(self, folder: Path, figures: Figures) -> None:
        self.folder, self.figures = folder, figures
        self.stop = threading.Event()
        library = inject.compile_calls(folder)
        if library is None:
            sys.exit("calls cannot be made to fail here: it needs Linux and a C compiler")
        self.library = library

    def start(
        self, words: Sequence[str], place: Path, plan: Path, environment: Mapping[str, str] = {}
    ) -> subprocess.Popen[bytes]:
        """Start `regard` with these words in a folder."""
        (place / "tmp").mkdir(exist_ok=True)
        given = inject.environment(self.library, plan) | {
            "PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(place / "tmp"), **environment,
        }  # fmt: skip
        said = place.with_name(f"{place.name}.said")
        with said.open("wb") as out:
            return subprocess.Popen(
                [sys.executable, "-m", "regard", *words], cwd=place, env=given, stdin=subprocess.DEVNULL, stdout=out,
                stderr=out, start_new_session=True,
            )  # fmt: skip

    def live(self, words: Sequence[str], place: Path, how: Disturbance, calls: int = 0, seconds: float = 0) -> Life:
        """Run a command to its end, however that comes."""
        plan_path = place.with_name(f"{place.name}.plan")
        plan = Plan(plan_path)
        target = 1 + int(how.target * calls) if how.fault else 0
        plan.set(place, target=target, fault=how.fault, room=how.room, offset=0 if how.moment else how.offset)
        began = time.monotonic()
        process = self.start([*words, *how.more], place, plan_path, dict(how.environment))
        for kind, size in how.limits:
            resource.prlimit(process.pid, kind, (size, size))
        signalled = False
        while process.poll() is None and not self.stop.is_set():
            passed = time.monotonic() - began
            if how.moment and passed >= how.moment * seconds:
                if how.offset:
                    plan.jump(how.offset)
                elif how.signal and not signalled:
                    process.send_signal(how.signal)
                    signalled = True
            if passed > HANG:
                self.figures.fail("silent", f"{' '.join(words)}: no end within {HANG} s ({how.kind})")
                process.kill()
            time.sleep(0.01)
        if self.stop.is_set():
            process.kill()
        process.wait()
        plan.stop()
        calls_made = plan.calls() if plan.count <= CALLS else []
        err = place.with_name(f"{place.name}.said").read_text(errors="replace")
        return Life(process.returncode, err, calls_made, time.monotonic() - began, signalled)

    def end_all(self) -> int:
        """End every process that has this folder in its environment; returns how many there were."""
        mark, ended = os.fsencode(f"{inject.VARIABLE}={self.folder}"), 0
        for path in Path("/proc").iterdir():
            try:
                if path.name.isdigit() and mark in (path / "environ").read_bytes() and int(path.name) != os.getpid():
                    os.kill(int(path.name), signal.SIGKILL)
                    ended += 1
            except OSError:
                continue
        return ended


class Story:
    """One command from its first life to its undisturbed end."""

    def __init__(self, machine: Machine, name: str, template: Path) -> None:
        self.machine, self.name, self.command = machine, name, COMMANDS[name]
        self.template, self.figures = template, machine.figures
        place = self._place("whole")
        life = machine.live(self.command.words, place, Disturbance("none"))
        if machine.stop.is_set():
            return
        if life.code:
            raise SystemExit(f"{name}: undisturbed, it ended with {life.code}: {life.err[-500:]}")
        self.whole, self.calls, self.seconds = read_files(place), len(life.calls), life.seconds

    def _place(self, number: str) -> Path:
        place = self.template.with_name(f"{self.template.name}-{number}")
        shutil.copytree(self.template, place)
        return place

    def tell(self, number: int, draw: random.Random) -> None:
        """Disturb the command some times, then leave it alone, and compare."""
        place = self._place(str(number))
        for _ in range(draw.randrange(1, LIVES + 1)):
            how = choose(draw)
            if how.more and (self.command.words[0] != "train" or not newest_step(place)):
                continue  # a run that starts with other threads is another run
            done = self._disturb(place, how)
            if self.machine.stop.is_set() or done:
                break
        if self.machine.stop.is_set():
            return
        life = self.machine.live(self.command.words, place, Disturbance("none"))
        if self.machine.stop.is_set():
            return
        self.figures.count(self.figures.stories, self.name)
        if life.code:
            self._fail("lost", place, f"left alone, it ended with {life.code}: {life.err[-400:]!r}")
        elif fault := self._find_difference(place):
            self._fail("different", place, fault)
        else:
            shutil.rmtree(place)

    def _disturb(self, place: Path, how: Disturbance) -> bool:
        """Run one disturbed life and look at what it leaves; whether the command came to its end."""
        step, results = newest_step(place), _results(place)
        life = self.machine.live(self.command.words, place, how, self.calls, self.seconds)
        if self.machine.stop.is_set():
            return False
        self.figures.count(self.figures.lives, self.name)
        self.figures.count(self.figures.disturbed, how.kind)
        self._judge(place, how, life)
        if (now := newest_step(place)) < max(step, completed_step(life.calls)) and "--fresh" not in how.more:
            self._fail("lost", place, f"{how}: step {max(step, completed_step(life.calls))} was complete, now {now}")
        if gone := [name for name, data in results.items() if _results(place).get(name) != data]:
            self._fail("lost", place, f"{how}: {', '.join(gone[:3])} was complete, and is not what it was")
        if faults := find_faults(place):
            self._fail("different", place, f"{how}: is taken for complete: {faults[0]}")
        if life.code == 0 and (fault := self._find_difference(place, left=True)):
            self._fail("silent", place, f"{how}: exit code 0, but {fault}")
        return life.code == 0

    def _judge(self, place: Path, how: Disturbance, life: Life) -> None:
        """See that a failure is told, and count how it ended."""
        killed = how.signal == signal.SIGKILL or how.fault is KILLED
        expected = {-signal.SIGKILL} if killed else set()
        if how.signal and not killed:
            expected = {-how.signal, 128 + how.signal}
        self.figures.count(
            self.figures.ended,
            "well" if life.code == 0 else "killed" if life.code < 0 else f"told, exit code {life.code}",
        )
        if "Traceback" in life.err or "regard: unexpected" in life.err:
            self._fail("unclear", place, f"{how}: {life.code}: {life.err[-600:]!r}")
        elif life.code < 0 and life.code not in expected:
            self._fail("unclear", place, f"{how}: ended by signal {-life.code}: {life.err[-300:]!r}")
        elif life.code > 0 and "regard: " not in life.err:
            self._fail("silent", place, f"{how}: {life.code} without a message: {life.err[-300:]!r}")
        elif how.more and life.code > 0 and "threads" not in life.err:
            self._fail("unclear", place, f"{how}: refused without its name: {life.err[-300:]!r}")

    def _find_difference(self, place: Path, *, left: bool = False) -> str:
        """How a folder differs from an undisturbed one; a life that ended well may have `left` files of an earlier one."""
        now = read_files(place)
        missing, other = self.whole.keys() - now.keys(), [n for n in self.whole if n in now and now[n] != self.whole[n]]
        more = set() if left else now.keys() - self.whole.keys()
        kinds = (("missing", missing), ("different", other), ("left over", more))
        return "; ".join(f"{what}: {', '.join(sorted(names)[:4])}" for what, names in kinds if names)

    def _fail(self, promise: str, place: Path, said: str) -> None:
        kept = place.with_name(f"{place.name}.kept-{time.monotonic():.0f}")
        shutil.copytree(place, kept, dirs_exist_ok=True)
        self.figures.fail(promise, f"{self.name} in {kept}: {said}")


def _results(place: Path) -> dict[str, bytes]:
    """Files that stay once they are there: cells of studies, the final model."""
    found = [*place.glob("study/cells/*.json"), *place.glob("run/final/*"), *place.glob("hf/*")]
    return {str(path): path.read_bytes() for path in found}


def _write_template(folder: Path, machine: Machine, command: Command) -> Path:
    write_inputs(folder)
    for name, recipe in RECIPES.items():
        longer = {**recipe, "train": {**recipe["train"], **LONGER}}
        (folder / f"{name}.yaml").write_text(json.dumps(longer))
    for words in command.before:
        life = machine.live(words, folder, Disturbance("none"))
        if life.code and not machine.stop.is_set():
            raise SystemExit(f"{' '.join(words)} ended with {life.code}: {life.err[-500:]}")
    return folder


def _work(machine: Machine, stories: Sequence[Story], slot: int, seed: int, end: float) -> None:
    draw, number = random.Random(f"{seed} {slot}"), 0
    while time.monotonic() < end and not machine.stop.is_set():
        number += 1
        try:
            draw.choice(stories).tell(number * SLOTS + slot, draw)
        except Exception as error:  # a fault of its own making must be seen, and not end the others
            machine.figures.fail("unclear", f"this script: {type(error).__name__}: {error}")


def _serve(machine: Machine, folder: Path, seed: int, end: float) -> None:
    try:
        Swapped(machine, folder, random.Random(f"{seed} serve")).run(end)
    except Exception as error:
        machine.figures.fail("unclear", f"this script, serving: {type(error).__name__}: {error}")


def run_chaos(
    minutes: float, seed: int, folder: Path, write: Callable[[Figures, float], None], machine: Machine | None = None
) -> Figures:
    """Do all of it for so many minutes; returns the figures."""
    machine = machine or Machine(folder, Figures())
    figures = machine.figures
    try:
        stories = [
            Story(machine, name, _write_template(folder / f"story{n}", machine, command))
            for n, (name, command) in enumerate(COMMANDS.items())
        ]
        began = time.monotonic()
        end = began + 60 * minutes
        places = folder / "serve"
        threads = [threading.Thread(target=_work, args=(machine, stories, slot, seed, end)) for slot in range(SLOTS)]
        threads.append(threading.Thread(target=_serve, args=(machine, places, seed, end)))
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            time.sleep(min(5, 60 * minutes / 4))
            write(figures, time.monotonic() - began)
        write(figures, time.monotonic() - began)
    finally:
        machine.stop.set()
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join(60)
        machine.end_all()
    return figures


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.chaos", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", action="store_true", help="keep the folder, with a copy of every broken promise")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "chaos.json", help="figures, written now and then")
    parser.add_argument("--record", action="store_true", help="write the figures to results/, too")
    asked = parser.parse_args(words)
    os.nice(max(0, 10 - os.nice(0)))
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    command = f"python -m tests.faults.chaos --minutes {asked.minutes:g} --seed {asked.seed}"

    def write(figures: Figures, seconds: float) -> None:
        asked.out.write_text(json.dumps({"minutes": round(seconds / 60, 1), **figures.plain()}, indent=2) + "\n")

    folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="regard-chaos-")))
    figures = Figures()
    try:
        run_chaos(asked.minutes, asked.seed, folder, write, Machine(folder, figures))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    finally:
        if not asked.keep and not figures.broken:
            shutil.rmtree(folder, ignore_errors=True)
    print(_table(figures))
    if asked.record:
        record(figures, asked.minutes, command)
    return int(figures.broken.total() > 0)


def record(figures: Figures, minutes: float, command: str) -> Path:
    """Write the figures to results/."""
    from bench import results
    from bench.entry import Mode

    Mode.record = True
    return results.write("chaos", title=f"{minutes:g} minutes of chaos", command=command, figures=figures.plain())


def _table(figures: Figures) -> str:
    from regard.report.table import Table

    plain = figures.plain()
    rows = [
        (kind, what, str(number))
        for kind, row in plain.items()
        if isinstance(row, dict)
        for what, number in row.items()
    ]
    return "\n".join([Table(("what", "kind", "count"), tuple(rows)).markdown(), *plain["told"]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
