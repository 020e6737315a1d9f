"""A disk that is really full is told as such, with exit code 5; what it costs is tried by `tests.faults.every_write`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRAIN = (
    "regard train copy --out disk/run --set train.steps=4 --set train.schedule.warmup=1 --set data.generate.count=40"
)


WAYS = (["unshare", "--map-root-user", "--mount"], ["unshare", "--mount"])
"""How to mount what nobody else sees: as any user where that is allowed, else as root."""


def mounting() -> list[str] | None:
    """The beginning of a command that may mount; None if there is no way here."""
    for way in WAYS:
        if shutil.which(way[0]):
            tried = subprocess.run([*way, "mount", "-t", "tmpfs", "tmpfs", tempfile.gettempdir()], capture_output=True)
            if tried.returncode == 0:
                return list(way)
    return None


@pytest.fixture(scope="module")
def way() -> list[str]:
    found = mounting()
    if found is None:
        pytest.skip("no file system can be mounted here: neither user namespaces nor the rights of root")
    return found


def inside(way: list[str], folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command where it may mount, and where what it mounts is gone when it ends."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "TMPDIR": str(folder)}
    return subprocess.run([*way, *words], cwd=folder, env=environment, capture_output=True, text=True)


def test_the_command_line_tells_a_full_disk(way: list[str], tmp_path: Path) -> None:
    """One line, how many bytes are needed, and exit code 5."""
    script = f"mkdir disk && mount -t tmpfs -o size=64k tmpfs disk && exec {sys.executable} -m {TRAIN}"
    found = inside(way, tmp_path, "sh", "-c", script)
    assert (found.returncode, found.stdout) == (5, ""), found.stderr
    last = found.stderr.splitlines()[-1]
    assert re.match(
        r"regard: not enough disk space to .+ in disk/run\S* \(No space left on device\): [\d.]+ kB needed, ", last
    ), last
    assert last.endswith("make space and run the same command again; everything saved before is intact")
    assert "Traceback" not in found.stderr


def test_a_result_that_goes_nowhere(tmp_path: Path) -> None:
    """Where the model is, goes to a full disk: no traceback, exit code 5."""
    found = inside([], tmp_path, "sh", "-c", f"exec {sys.executable} -m {TRAIN} > /dev/full")
    assert (found.returncode, found.stdout) == (5, "")
    assert found.stderr.endswith("regard: the output cannot be written: No space left on device\n")
    assert "Traceback" not in found.stderr


def test_progress_that_goes_nowhere(tmp_path: Path) -> None:
    """What is said about training goes to a full disk: the model is not lost for that."""
    found = inside([], tmp_path, "sh", "-c", f"exec {sys.executable} -m {TRAIN} 2> /dev/full")
    assert (found.returncode, found.stdout) == (0, "disk/run/final\n")
