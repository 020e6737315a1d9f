"""Run the tests as other machines would: `make test-machines`.

Each variation is one run of pytest: other vector instructions, other numbers of threads, bfloat16 forced, and the whole
suite in random order beside a busy program and one that walks the temporary folder. A test that fails in any of them
depends on the processor, on who else is running, or on the order of tests.

`python -m tests.machines` runs all; names of variations restrict it, `--` passes the rest on to pytest:
`python -m tests.machines default avx2 -- tests/decode`. The table is printed and written to runs/machines.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from regard.report.table import Table

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "runs" / "machines.json"
NUMERIC = ("-m", "numeric")
LEARNING = ("tests/training", "tests/decode", "tests/tasks", "tests/verbs", "tests/test_api.py")
BUSY = "while True: pass"
WALKER = """
import os, sys, time
while True:
    for folder, _, names in os.walk(sys.argv[1]):
        for name in names:
            path = os.path.join(folder, name)
            try:
                if os.path.isfile(path) and os.path.getsize(path) < 1 << 20:
                    with open(path, "rb") as file:
                        file.read()
            except OSError:
                pass  # it is gone
    time.sleep(0.05)
"""


@dataclass(frozen=True)
class Variation:
    """How one run of the tests differs from the one on this machine."""

    options: tuple[str, ...] = NUMERIC
    environment: dict[str, str] = field(default_factory=dict)
    company: bool = False
    """Whether a busy program and one that walks the temporary folder run beside it."""


@dataclass(frozen=True)
class Outcome:
    """What came of one run."""

    variation: str
    passed: int
    failed: int
    seconds: float
    failures: tuple[str, ...]


VARIATIONS: dict[str, Variation] = {
    "default": Variation(environment={"ATEN_CPU_CAPABILITY": "default"}),
    "avx2": Variation(environment={"ATEN_CPU_CAPABILITY": "avx2"}),
    "onednn-avx2": Variation(environment={"ONEDNN_MAX_CPU_ISA": "AVX2"}),
    "onednn-sse41": Variation(environment={"ONEDNN_MAX_CPU_ISA": "SSE41", "ATEN_CPU_CAPABILITY": "default"}),
    "one-thread": Variation(environment={"OMP_NUM_THREADS": "1"}),
    "four-threads": Variation((*NUMERIC, "--threads", "4"), {"OMP_NUM_THREADS": "4", "OMP_WAIT_POLICY": "passive"}),
    "bfloat16": Variation(("--precision", "bfloat16", *LEARNING)),
    "float32": Variation(("--precision", "float32", *LEARNING)),
    "shuffled": Variation(("--shuffle", "1"), company=True),
}


@contextmanager
def company() -> Iterator[None]:
    """A program that keeps a core busy and one that reads everything in the temporary folder."""
    programs = [[BUSY], [WALKER, tempfile.gettempdir()]]
    running = [subprocess.Popen([sys.executable, "-c", *words]) for words in programs]
    try:
        yield
        assert all(process.poll() is None for process in running), "the company left early"
    finally:
        for process in running:
            process.kill()
            process.wait()


@contextmanager
def alone() -> Iterator[None]:
    yield


def run(name: str, workers: int, more: Sequence[str]) -> Outcome:
    """Run the tests under a variation; `more` goes to pytest, where a path takes the place of those of the variation."""
    variation = VARIATIONS[name]
    options = [word for word in variation.options if not (word.startswith("tests") and _paths(more))]
    several = ["--numprocesses", str(workers), "--dist", "worksteal"] if workers > 1 else []
    environment = {"OMP_NUM_THREADS": "1", **os.environ, **variation.environment}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}", *several]
        began = time.monotonic()
        with company() if variation.company else alone():
            done = subprocess.run([*command, *options, *more], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True,
                                  check=False)  # fmt: skip
        if done.returncode not in (0, 1):
            raise SystemExit(f"{name}: pytest could not run\n{done.stdout[-3000:]}")
        return summarize(name, report.read_text(encoding="utf-8"), time.monotonic() - began)


def summarize(name: str, report: str, seconds: float) -> Outcome:
    """Count and name what is in the report that pytest writes."""
    passed, failures = 0, []
    for case in ElementTree.fromstring(report).iter("testcase"):
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            failures.append(f"{case.get('classname')}::{case.get('name')}")
        elif "skipped" not in kinds:
            passed += 1
    return Outcome(name, passed, len(failures), round(seconds, 1), tuple(failures))


def _paths(words: Sequence[str]) -> list[str]:
    return [word for word in words if word.startswith("tests")]


def main(words: Sequence[str]) -> int:
    own, more = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    parser = argparse.ArgumentParser(prog="python -m tests.machines", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="VARIATION", help=", ".join(VARIATIONS))
    parser.add_argument("--workers", type=int, default=2, help="processes that share the tests")
    asked = parser.parse_args(own)
    for name in asked.names:
        if name not in VARIATIONS:
            parser.error(f"no variation {name!r}; there is {', '.join(VARIATIONS)}")
    outcomes = []
    for name in asked.names or VARIATIONS:
        outcomes.append(run(name, asked.workers, more))
        print(f"{name}: {outcomes[-1].passed} passed, {outcomes[-1].failed} failed", file=sys.stderr, flush=True)
    head = ("variation", "passed", "failed", "seconds")
    print(Table(head, tuple((o.variation, o.passed, o.failed, o.seconds) for o in outcomes)).markdown())
    for outcome in outcomes:
        for failure in outcome.failures:
            print(f"{outcome.variation}: {failure}")
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=2) + "\n", encoding="utf-8")
    return int(any(outcome.failed for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
