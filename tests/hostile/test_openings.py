"""An opened file is blamed on the attempt that opened it, whoever else opens files at the same time."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors import safe_open

from regard.files.tensors import pack
from tests.hostile.openings import Openings

WALK = """
import sys
from pathlib import Path
while True:
    for path in sorted(Path(sys.argv[1]).rglob("*")):
        if path.is_file():
            path.read_bytes()
    print("walked", flush=True)
"""


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    outside, twin = tmp_path / "outside", tmp_path / "twin"
    (outside / "model").mkdir(parents=True)
    (outside / "secret.safetensors").write_bytes(pack({}))
    (outside / "model" / "config.json").write_bytes(b"{}")
    shutil.copytree(outside, twin)
    return outside, twin


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[None]:
    """A program that reads every file in the temporary folder, again and again."""
    with subprocess.Popen([sys.executable, "-c", WALK, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield
        process.kill()


def reach(outside: Path) -> None:
    with safe_open(outside / "secret.safetensors", "pt"):  # opened by a library: Python hears nothing of it
        pass


def test_a_file_opened_by_a_library_is_seen(folders: tuple[Path, Path]) -> None:
    openings = Openings(*folders)
    assert openings.blame(lambda: None) == []
    reach(folders[0])
    assert openings.blame(lambda: reach(folders[0])) == ["outside: secret.safetensors"]
    (folders[0] / "model" / "config.json").read_bytes()
    assert openings.blame((folders[0] / "model" / "config.json").read_bytes) == ["outside: config.json"]


def test_a_stranger_is_not_taken_for_the_attempt(folders: tuple[Path, Path], stranger: None) -> None:
    openings = Openings(*folders)
    for _ in range(50):
        assert openings.blame(lambda: sum(range(50_000))) == []


def test_an_attempt_is_found_beside_a_stranger(folders: tuple[Path, Path], stranger: None) -> None:
    openings = Openings(*folders)
    reach(folders[0])
    assert "outside: secret.safetensors" in openings.blame(lambda: reach(folders[0]))
