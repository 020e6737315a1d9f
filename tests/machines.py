"""Run the tests as other machines would: `make test-machines`.

Each variation is one run of pytest: other vector instructions, other numbers of threads, bfloat16 forced, and the whole
suite in random order beside a busy program and one that walks the temporary folder. What touches files, times and words runs
under another umask, time zone, locale and seed of hashes, as a user without rights, and on other versions of Python. A test
that fails in any of them depends on the processor, on who is running it or what else, or on the order of tests.

A user without rights needs a Python that such a user may run: this one, or the system's of the same version. Other versions
are those of `.venv-3.12` and `.venv-3.13` (`make test PYTHON=python3.13 VENV=.venv-3.13` makes one); where torch is missing,
only what runs without it is tested. A variation that cannot run here is said to be missing, and is no success.

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
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from regard.report.table import Table

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "runs" / "machines.json"
NUMERIC = ("-m", "numeric")
LEARNING = ("tests/training", "tests/decode", "tests/tasks", "tests/verbs", "tests/test_api.py")
FILES = (
    *(f"tests/test_{name}.py" for name in ("storage", "folder", "user_file", "cli")),
    *(f"tests/{name}" for name in ("data", "text", "recipes", "verbs", "serve", "training", "studies", "faults")),
)
"""What files, users, clocks, locales and the order of sets can affect."""
NEED_TORCH = (
    "text/test_native_calls.py",
    "data/test_packing.py",
    "data/test_bptt.py",
    "data/test_batch.py",
    "data/filters",
)
TORCHLESS = (
    *(f"tests/test_{name}.py" for name in ("user_file", "errors", "spec", "machine")),
    *(f"tests/{name}" for name in ("data", "text", "recipes", "report")),
    *(f"--ignore=tests/{name}" for name in NEED_TORCH),
    "--deselect=tests/test_user_file.py::test_only_regular_files_are_opened",  # it converts, too
)
"""What is tested where there is no torch."""
NOBODY = 65534
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
    umask: int = -1
    unprivileged: bool = False
    """Whether it runs as a user without rights."""
    python: str = ""
    """Another version of Python, such as 3.13."""


class Missing(Exception):
    """A variation cannot run here; the message says why."""


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
    "umask-077": Variation(FILES, umask=0o077),
    "umask-002": Variation(FILES, umask=0o002),
    "time-zone": Variation(FILES, {"TZ": "Pacific/Chatham"}),
    "locale-c": Variation(FILES, {"LANG": "C", "LC_ALL": "C"}),
    "hash-seed-1": Variation(FILES, {"PYTHONHASHSEED": "1"}),
    "hash-seed-2": Variation(FILES, {"PYTHONHASHSEED": "2"}),
    "unprivileged": Variation(FILES, unprivileged=True),
    "python-3.12": Variation(FILES, python="3.12"),
    "python-3.13": Variation(FILES, python="3.13"),
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


def _borrow_libraries(python: str, folder: Path) -> Path:
    """Make a virtual environment of another Python of this version, with the libraries of this one."""
    place = folder / "venv"
    subprocess.run([python, "-m", "venv", "--without-pip", str(place)], capture_output=True, check=False)
    for found in place.glob("lib/python*/site-packages"):
        libraries = [str(ROOT / "src"), *(path for path in sys.path if path.endswith("site-packages"))]
        (found / "libraries.pth").write_text("\n".join(libraries) + "\n")
    return place / "bin" / "python"


def find_python(variation: Variation, folder: Path) -> tuple[str, bool]:
    """The Python of a variation, and whether it has torch; `folder` is for what has to be made."""
    if variation.python:
        path = ROOT / f".venv-{variation.python}" / "bin" / "python"
        if not path.exists():
            raise Missing(f"there is no {path}")
        command = [str(path), "-c", "import torch"]
        return str(path), subprocess.run(command, capture_output=True, check=False).returncode == 0
    if not variation.unprivileged or os.geteuid() != 0:
        return sys.executable, True
    system = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    for path in (sys.executable, str(_borrow_libraries(system, folder))):
        with suppress(OSError):
            tried = subprocess.run(
                [path, "-c", "import torch, regard, pytest"], cwd=ROOT, user=NOBODY, group=NOBODY, extra_groups=[],
                capture_output=True, check=False,
            )  # fmt: skip
            if tried.returncode == 0:
                return path, True
    raise Missing(f"a user without rights may run neither {sys.executable} nor {system} with what the tests need")


def run(name: str, workers: int, more: Sequence[str]) -> Outcome:
    """Run the tests under a variation; `more` goes to pytest, where a path takes the place of those of the variation."""
    variation = VARIATIONS[name]
    several = ["--numprocesses", str(workers), "--dist", "worksteal"] if workers > 1 else []
    environment = {"OMP_NUM_THREADS": "1", **os.environ, **variation.environment}
    who: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        python, has_torch = find_python(variation, Path(folder))
        options = [*(variation.options if has_torch else TORCHLESS)]
        options = [word for word in options if not (word.startswith("tests") and _paths(more))]
        if variation.unprivileged and os.geteuid() == 0:
            who = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
            os.chown(folder, NOBODY, NOBODY)
            environment |= {"HOME": folder, "TMPDIR": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        report = Path(folder) / "report.xml"
        command = [python, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}", *several]
        began = time.monotonic()
        with company() if variation.company else alone():
            done = subprocess.run([*command, *options, *more], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True,
                                  umask=variation.umask, check=False, **who)  # fmt: skip
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
    outcomes, missing = list[Outcome](), list[str]()
    for name in asked.names or VARIATIONS:
        try:
            outcomes.append(run(name, asked.workers, more))
        except Missing as error:
            missing.append(f"{name}: not run: {error}")
            print(missing[-1], file=sys.stderr, flush=True)
            continue
        print(f"{name}: {outcomes[-1].passed} passed, {outcomes[-1].failed} failed", file=sys.stderr, flush=True)
    head = ("variation", "passed", "failed", "seconds")
    print(Table(head, tuple((o.variation, o.passed, o.failed, o.seconds) for o in outcomes)).markdown())
    for outcome in outcomes:
        for failure in outcome.failures:
            print(f"{outcome.variation}: {failure}")
    print(*missing, sep="\n", end="\n" * bool(missing))
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=2) + "\n", encoding="utf-8")
    return int(bool(missing) or any(outcome.failed for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
