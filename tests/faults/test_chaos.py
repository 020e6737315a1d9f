"""What `python -m tests.faults.chaos` counts and writes; the whole takes hours."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import chaos
from tests.faults.chaos import Figures, Machine, choose

bench = pytest.importorskip("bench.results")


def test_figures_are_written_with_every_promise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from bench.entry import Mode

    monkeypatch.setattr(bench, "RECORDED", tmp_path)
    monkeypatch.setattr(Mode, "record", False)
    figures = Figures()
    figures.fail("lost", "a checkpoint")
    written = json.loads(chaos.record(figures, 2, "python -m tests.faults.chaos --minutes 2").read_text())
    assert written["figures"]["promises"] == {"lost": 1, "different": 0, "silent": 0, "unclear": 0}
    assert written["figures"]["told"] == ["lost: a checkpoint"]


def test_every_disturbance_is_chosen_and_the_same_for_a_seed() -> None:
    def kinds(seed: int) -> list[str]:
        draw = random.Random(seed)
        return [choose(draw).kind for _ in range(300)]

    assert kinds(1) == kinds(1) != kinds(2)
    assert {*kinds(1)} == {
        "SIGKILL", "SIGTERM", "SIGINT", "SIGKILL at a call", "full disk", "call fails", "clock", "descriptors", "memory",
        "file size", "threads",
    }  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_whatever_was_started_is_found_and_ended(tmp_path: Path) -> None:
    machine = Machine.__new__(Machine)
    machine.folder = tmp_path
    started = subprocess.Popen(["sleep", "600"], env={"REGARD_FAULTS": f"{tmp_path}/plan"}, start_new_session=True)
    other = subprocess.Popen(["sleep", "600"], env={"REGARD_FAULTS": "/elsewhere/plan"})
    try:
        assert machine.end_all() == 1
        assert started.wait(60) == -9
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
        started.kill()
        started.wait()
