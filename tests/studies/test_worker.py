"""A child answers, and is ended at its limits, when it is left, and when Ctrl-C comes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from regard.studies.worker import Child, Stopped

MODULE = "tests.studies.answering"


@pytest.fixture(autouse=True)
def at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_it_answers_again_and_again() -> None:
    with Child(MODULE, memory=0) as child:
        for n in range(3):
            assert child.ask({"n": n}, 30) == {"heard": {"n": n}}
    assert gone(child.pid)


def test_too_long() -> None:
    with Child(MODULE, memory=0) as child:
        child.ask({}, 30)
        began = time.monotonic()
        with pytest.raises(Stopped, match="it took longer than 1 s"):
            child.ask({"wait": 60}, 1)
        assert time.monotonic() - began < 50, "it was not waited for"
    assert gone(child.pid)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not say how large a process is")
def test_too_much() -> None:
    with Child(MODULE, memory=100 << 20) as child:
        child.ask({}, 30)
        with pytest.raises(Stopped, match=r"it took 0\.\d GB of memory, and 0\.1 GB is the limit"):
            child.ask({"bytes": 300 << 20, "then": 30}, 60)
    assert gone(child.pid)


def test_it_ends_by_itself_and_says_why() -> None:
    with Child(MODULE, memory=0) as child:
        with pytest.raises(Stopped, match="its process ended with code 1: no room"):
            child.ask({"complain": "no room"}, 30)
        with pytest.raises(Stopped, match="its process ended with code 1"):
            child.ask({}, 30)


def test_an_interrupt_ends_it_too() -> None:
    with pytest.raises(KeyboardInterrupt), Child(MODULE, memory=0) as child:
        child.ask({}, 30)
        raise KeyboardInterrupt
    assert gone(child.pid)
