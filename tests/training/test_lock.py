"""One writer a run, whatever happens to the writer."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from regard.errors import CheckpointError, RegardError
from regard.files.storage import ADVICE
from regard.training.run.lock import LOCK, RunLock

HOLD = """
import sys
from regard.training.run.lock import RunLock
with RunLock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_writer_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    with RunLock(tmp_path / "runs" / "x"), pytest.raises(RegardError) as caught, RunLock(tmp_path / "runs" / "x"):
        pass
    who = f"is being written by process {os.getpid()} on {socket.gethostname()}"
    assert who in str(caught.value)
    assert "wait until it ends, stop it, or choose another folder" in str(caught.value)


def test_a_child_that_outlives_its_parent_by_an_instant_is_waited_for(tmp_path: Path) -> None:
    """A forked process holds its parent's files, and so the lock, until it has begun to run something else."""
    with RunLock(tmp_path):
        child = os.fork()
        if child == 0:
            time.sleep(0.3)
            os._exit(0)
    with RunLock(tmp_path):  # ours is closed, but not the child's
        assert os.waitpid(child, 0)[1] == 0


def test_it_is_free_again_afterwards(tmp_path: Path) -> None:
    for _ in range(2):
        with RunLock(tmp_path):
            pass
    with pytest.raises(ZeroDivisionError), RunLock(tmp_path):
        _ = 1 / 0
    with RunLock(tmp_path):
        pass


def test_who_is_refused_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), RunLock(tmp_path / "runs" / "x"):
        _ = 1 / 0
    assert not (tmp_path / "runs").exists()
    (tmp_path / "own").mkdir()
    with pytest.raises(ZeroDivisionError), RunLock(tmp_path / "own"):
        _ = 1 / 0
    assert (tmp_path / "own").exists()  # we did not make it
    assert not (tmp_path / "own" / LOCK).exists()
    with pytest.raises(ZeroDivisionError), RunLock(tmp_path / "begun"):
        (tmp_path / "begun" / "run.json").write_text("{}")
        _ = 1 / 0
    assert (tmp_path / "begun" / "run.json").exists()


def test_who_waited_for_a_lock_that_was_taken_away_makes_another(tmp_path: Path) -> None:
    """Else a third would lock a new file, and there would be two writers."""
    entered = []

    def wait() -> None:
        with RunLock(tmp_path / "x"):
            entered.append((tmp_path / "x" / LOCK).read_text())
            with pytest.raises(RegardError, match="being written by process"), RunLock(tmp_path / "x"):
                pass

    waiting = threading.Thread(target=wait)
    with pytest.raises(ZeroDivisionError), RunLock(tmp_path / "x"):
        waiting.start()
        time.sleep(0.2)
        _ = 1 / 0
    waiting.join(30)
    assert entered == [f"process {os.getpid()} on {socket.gethostname()}\n"]


def test_a_holder_that_has_not_signed_yet_is_another_process(tmp_path: Path) -> None:
    with RunLock(tmp_path):
        (tmp_path / LOCK).write_bytes(b"")
        with pytest.raises(RegardError, match="being written by another process"), RunLock(tmp_path):
            pass


def test_a_file_where_the_run_should_be(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"")
    with pytest.raises(CheckpointError, match="there is a file where a folder should be"), RunLock(tmp_path / "x"):
        pass


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.EIO])
def test_a_file_system_that_cannot_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """As some network file systems: it is said, and nobody trains without a lock."""

    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(CheckpointError) as caught, RunLock(tmp_path):
        pytest.fail("it went on")
    assert str(caught.value) == f"cannot lock the run in {tmp_path} ({os.strerror(number)}); {ADVICE[number]}"
    monkeypatch.undo()
    with RunLock(tmp_path):
        pass


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    source = str(Path(__file__).parents[2] / "src")
    environment = {**os.environ, "PYTHONPATH": source}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(RegardError, match=f"process {holder.pid} on "), RunLock(tmp_path):
            pass
        holder.kill()
        holder.wait()
        with RunLock(tmp_path):
            assert (tmp_path / LOCK).read_text().startswith(f"process {os.getpid()} on ")
