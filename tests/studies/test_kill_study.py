"""A study that is killed goes on, with one table; `python -m tests.studies.kill 30` kills more often."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.verbs.calling import ENVIRONMENT, ROOT


@pytest.mark.slow
def test_a_killed_study_has_the_same_table() -> None:
    """In a process of its own, which forks before torch has threads."""
    words = [sys.executable, "-m", "tests.studies.kill", "1", "1"]
    done = subprocess.run(words, env=ENVIRONMENT, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("the same table after every kill: {'kills': 1")
