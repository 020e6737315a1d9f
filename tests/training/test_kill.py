"""kill -9 at any moment costs no checkpoint, and the resumed run is the one that was never killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("REGARD_KILLS", "6"))


@pytest.mark.slow
def test_a_killed_run_loses_nothing(tmp_path: Path) -> None:
    """In a process of its own: this one has threads, and must not fork."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "tests.training.kill", str(KILLS)]
    found = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith(f"{KILLS} kills, nothing lost")
