"""Stopping when asked, first in this process, then as a user does it: a real command and real signals."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from regard.training.run.checkpoint import Checkpoints
from regard.training.run.interrupt import InterruptHandler
from regard.training.run.log import read_log
from regard.training.train import run_training
from tests.training.small import COPY, TINY, tiny, traces

ROOT = Path(__file__).parents[2]


def test_the_first_signal_is_noted() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with InterruptHandler() as interrupt:
            assert interrupt.signal is None
            os.kill(os.getpid(), number)
            assert interrupt.signal == number


def test_a_second_ctrl_c_stops_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), InterruptHandler() as interrupt:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.signal == signal.SIGINT
        os.kill(os.getpid(), signal.SIGINT)


def test_a_second_sigterm_changes_nothing_but_a_ctrl_c_after_it_stops() -> None:
    with pytest.raises(KeyboardInterrupt), InterruptHandler() as interrupt:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupt.signal == signal.SIGTERM
        os.kill(os.getpid(), signal.SIGINT)


def test_afterwards_signals_do_what_they_did_before() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        with InterruptHandler():
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_closed_terminal_that_nohup_ignores_is_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with InterruptHandler() as interrupt:
            os.kill(os.getpid(), signal.SIGHUP)
            assert interrupt.signal is None
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_in_another_thread_signals_are_left_alone() -> None:
    found: list[Any] = []

    def work() -> None:
        with InterruptHandler() as interrupt:
            found.append((interrupt.signal, signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [(None, signal.default_int_handler)]


# A real command.

CHANGES: dict[str, Any] = {
    "train__steps": 200,
    "train__validate_every": 200,
    "train__save_every": 200,
    "model__dropout": 0.1,
}


def command(out: Path, changes: dict[str, Any]) -> subprocess.Popen[str]:
    settings = {**COPY, **TINY, **{path.replace("__", "."): value for path, value in changes.items()}}
    words = [sys.executable, "-W", "error", "-m", "regard", "train", "copy", "--out", str(out)]
    words += [word for path, value in settings.items() for word in ("--set", f"{path}={json.dumps(value)}")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_step(out: Path, step: int, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 300
    while not any(e["event"] == "train" and e["step"] >= step for e in read_log(out / "log.jsonl")):
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("whole")
    run_training(tiny(folder, **CHANGES))
    return traces(folder)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_and_says_how_to_go_on(tmp_path: Path, whole: dict[str, Any], number: signal.Signals) -> None:
    out = tmp_path / "a run"
    with command(out, CHANGES) as process:
        wait_for_step(out, 5, process)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 128 + number
    assert stdout == ""
    steps = [event["step"] for event in read_log(out / "log.jsonl") if event["event"] == "train"]
    assert 5 <= steps[-1] < 200
    assert Checkpoints(out / "checkpoints").steps() == [steps[-1]], "the step in hand was the last, and was saved"
    last = stderr.strip().splitlines()[-1]
    assert last.startswith(
        f"regard: stopped at step {steps[-1]} of 200, and saved; to continue: regard train copy --set "
    )
    assert last.endswith(f"--out '{out}'")
    assert "Traceback" not in stderr
    run_training(tiny(out, **CHANGES))
    assert traces(out) == whole


def _is_pending(pid: int, number: signal.Signals) -> bool:
    status = Path(f"/proc/{pid}/status")
    fields = re.findall(r"^(?:SigPnd|ShdPnd):\s*(\w+)$", status.read_text() if status.exists() else "", flags=re.M)
    return any(int(field, 16) >> (number - 1) & 1 for field in fields)


@pytest.mark.slow
def test_ctrl_c_twice_stops_in_the_middle_of_a_step(tmp_path: Path) -> None:
    slow = {
        "data__generate__max_length": 60,
        "data__generate__count": 4000,
        "data__max_length": 128,
        "model__width": 128,
    }
    with command(tmp_path, CHANGES | slow | {"model__hidden": 1024, "train__batch_tokens": 32000}) as process:
        wait_for_step(tmp_path, 1, process)
        process.send_signal(signal.SIGINT)
        while _is_pending(process.pid, signal.SIGINT):  # two at once would be one
            time.sleep(0.01)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "saved" not in stderr
    assert "Traceback" not in stderr
    assert not (tmp_path / "checkpoints").exists()
