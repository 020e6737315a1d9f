"""A few of the points of `python -m tests.faults.every_write`, and each kind of fault by itself."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import inject
from tests.faults.inject import EIO, EMFILE, ENOSPC, FULL, HALF, KILLED, TORN_WRITE, Call, Fault, Plan

ROOT = Path(__file__).parents[2]
SCRIPT = """
import os, shutil, sys, time
print(int(time.time() > 4e9))
os.mkdir("here")
with open("here/file", "wb", buffering=0) as file:
    print(file.write(b"0123456789"))
    os.fsync(file.fileno())
os.rename("here/file", "here/name")
shutil.rmtree("here")
"""
CALLS = ["mkdir /here", "create /here/file", "write /here/file", "fsync /here/file", "rename /here/name"]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = inject.compile_calls(tmp_path_factory.mktemp("library"))
    if found is None:
        pytest.skip("calls can be made to fail on Linux, with a C compiler")
    return found


class Script:
    """A small program below a plan."""

    def __init__(self, library: Path, folder: Path) -> None:
        self.folder, self.environment = folder, inject.environment(library, folder / "plan")
        self.plan = Plan(folder / "plan")

    def run(
        self, target: int = 0, fault: Fault | None = None, script: str = SCRIPT, **more: int
    ) -> subprocess.CompletedProcess[str]:
        (place := self.folder / "place").mkdir()
        self.plan.set(place, target=target, fault=fault, **more)
        command = [sys.executable, "-I", "-c", script]  # which does not look into its folder by itself
        return subprocess.run(command, cwd=place, env=self.environment, capture_output=True, text=True)


@pytest.fixture
def script(library: Path, tmp_path: Path) -> Script:
    return Script(library, tmp_path)


def test_calls_are_counted_in_order(script: Script) -> None:
    done = script.run()
    assert (done.stdout, done.stderr) == ("0\n10\n", "")
    calls = script.plan.calls()
    assert [f"{call.name} {call.path}" for call in calls if call.writes] == CALLS
    assert {call.name for call in calls[5:]} >= {"unlinkat"}
    assert not script.plan.hit


@pytest.mark.parametrize(
    ("number", "fault", "said"),
    [(1, ENOSPC, errno.ENOSPC), (2, EMFILE, errno.EMFILE), (3, ENOSPC, errno.ENOSPC), (4, EIO, errno.EIO), (5, EIO, errno.EIO)],
    ids=lambda given: given.name if isinstance(given, Fault) else str(given),
)  # fmt: skip
def test_a_call_fails(script: Script, number: int, fault: Fault, said: int) -> None:
    done = script.run(number, fault)
    assert done.returncode == 1 and os.strerror(said) in done.stderr
    assert script.plan.hit


def test_a_write_is_cut_in_half(script: Script) -> None:
    assert script.run(3, HALF).stdout == "0\n5\n"


@pytest.mark.parametrize(("fault", "left"), [(KILLED, b""), (TORN_WRITE, b"01234")])
def test_a_write_is_where_the_process_ends(script: Script, fault: Fault, left: bytes) -> None:
    assert script.run(3, fault).returncode == -signal.SIGKILL
    assert (script.folder / "place" / "here" / "file").read_bytes() == left


def test_a_disk_is_full_after_so_many_bytes_and_stays_full(script: Script) -> None:
    done = script.run(room=9)
    assert os.strerror(errno.ENOSPC) in done.stderr
    assert script.plan.hit


@pytest.mark.parametrize(("fault", "made"), [(ENOSPC, ["2", "3"]), (FULL, [])])
def test_a_fault_lasts_if_the_disk_is_full(script: Script, fault: Fault, made: list[str]) -> None:
    tries = "import contextlib, os\nfor n in '123':\n    with contextlib.suppress(OSError): os.mkdir(n); print(n)\n"
    assert script.run(1, fault, tries).stdout.split() == made


def test_the_clock_on_the_wall_is_ahead(script: Script) -> None:
    assert script.run(offset=86400 * 365 * 100).stdout.startswith("1\n")


def test_each_call_has_faults() -> None:
    assert Call("write", True, "/x").faults == (ENOSPC, FULL, EIO, HALF, TORN_WRITE)
    assert Call("fsync", True, "/x").faults == (EIO, KILLED)


@pytest.mark.slow
def test_faults_at_some_calls_keep_every_promise(library: Path) -> None:
    """The whole is a command, which takes an hour: `python -m tests.faults.every_write`."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "tests.faults.every_write", "--short"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(" 0 broken promises\n")
