"""`regard study complexity`: a short one from end to end, and what it refuses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from regard.studies import complexity
from regard.studies.time_shares import Size, measure_shares
from tests.verbs.calling import call, start


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(complexity, "SMALL", complexity.SMALL[:2])
    monkeypatch.setattr(complexity, "measure_shares", lambda: measure_shares(Size(16, 1, 2, 11, 2, 4), rounds=1))


@pytest.mark.usefixtures("small")
def test_from_end_to_end(tmp_path: Path) -> None:
    words = ("--mixers", "conv", "--lengths", "64,128", "--threads", 1, "--minutes", 30, "--out", tmp_path / "made")
    said = call("study", "complexity", *words, "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found == json.loads((tmp_path / "made/complexity.json").read_text())
    assert [c["name"] for c in found["contenders"]] == ["fused", "conv"]
    for contender in found["contenders"]:
        assert [p["n"] for p in contender["points"]] == [64, 128], contender["stopped"]
        assert all(p["forward"] > 0 and p["backward"] > 0 and p["bytes"] > 0 for p in contender["points"])
    assert (tmp_path / "made/report.html").read_text().startswith("<!doctype html>")
    assert "regard: 2 of 2: conv, torch's Conv1d, kernel 3" in said.err
    assert "report.html" in said.err.splitlines()[-1]


def test_unknown_names() -> None:
    said = call("study", "complexity", "--mixers", "lokal")
    assert (said.code, said.out, said.err) == (2, "", "regard: no contender 'lokal'; did you mean 'local'?\n")
    said = call("study", "complexty")
    assert said.code == 2
    assert "Did you mean 'complexity'" in said.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["scaling", "gpt", "--held-out", "96"], "--held-out takes a width and a number of steps, such as 128,6000; got '96'"),
        (["scaling", "gpt", "--widths", "wide"], "--widths should be whole numbers with commas, such as 64,128; got 'wide'"),
        (["gradients", "--delays", "1.5"], "--delays should be whole numbers with commas, such as 64,128; got '1.5'"),
    ],
)  # fmt: skip
def test_numbers_that_are_none(words: list[str], message: str) -> None:
    said = call("study", *words)
    assert (said.code, said.out, said.err) == (2, "", f"regard: {message}\n")


@pytest.mark.slow
def test_ctrl_c_ends_it_and_its_child(tmp_path: Path) -> None:
    words = ("--mixers", "fused", "--lengths", "64,128", "--threads", 1, "--minutes", 30, "--out", tmp_path)
    with start("study", "complexity", *words) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if b"1 of 1" in line:  # its child is about to begin, and loads torch for a while
                break
        while not (children := _children(process.pid)):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.decode().strip().endswith("regard: interrupted")
    assert children
    end = time.monotonic() + 60  # one that had only just begun finds nobody there, and ends by itself
    while left := [pid for pid in children if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < end, left


def _children(pid: int) -> list[int]:
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux lists the children of a process")
    said = subprocess.run(["ps", "--ppid", str(pid), "-o", "pid="], capture_output=True, text=True, check=False).stdout
    return [int(word) for word in said.split()]
