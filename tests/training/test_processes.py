"""Several processes on one run, as torchrun starts them: what two learn is what one with two threads learns."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from regard.errors import SpecError
from regard.files.folder import read_folder
from regard.training.request import TrainRequest
from regard.training.run.checkpoint import Checkpoints
from regard.training.run.log import read_log
from regard.training.step.data_parallel import ProcessGroup
from regard.training.train import run_training

pytestmark = pytest.mark.numeric

SET = {
    "data.generate.count": 400, "data.generate.valid": 20,
    "model.width": 16, "model.depth": 1, "model.heads": 2, "model.hidden": 32, "model.dropout": 0.1,
    "train.batch_tokens": 1024, "train.steps": 12, "train.schedule.warmup": 2, "train.validate_every": 6,
}  # fmt: skip


def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def started(folder: Path, *options: str, **more: object) -> list[subprocess.Popen[str]]:
    """Two processes with one thread each."""
    words = [f"{key}={value}" for key, value in (SET | {"train.threads": 1} | more).items()]
    command = [sys.executable, "-m", "regard", "train", "copy", "--out", str(folder), "--device", "cpu"]
    command += [*options, *(w for word in words for w in ("--set", word))]
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port())}
    return [
        subprocess.Popen(command, env={**os.environ, **place, "RANK": str(rank)}, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]


def ended(processes: list[subprocess.Popen[str]]) -> list[tuple[int, str]]:
    try:
        return [(p.wait(120), p.stderr.read() if p.stderr else "") for p in processes]
    finally:
        for p in processes:
            p.kill()
            if p.stderr:
                p.stderr.close()


def test_two_processes_learn_what_two_threads_learn(tmp_path: Path) -> None:
    run_training(
        TrainRequest("copy", out=str(tmp_path / "threads"), set=SET | {"train.threads": 2}, quiet=True, device="cpu")
    )
    assert [code for code, _ in ended(started(tmp_path / "processes"))] == [0, 0]
    one, two = (read_folder(tmp_path / name / "final").files["model.safetensors"] for name in ("threads", "processes"))
    assert one == two


def stepping(folder: Path) -> int:
    """Wait until steps are taken; the last one that was logged."""
    for _ in range(1200):
        steps = [event["step"] for event in read_log(folder / "log.jsonl") if event["event"] == "train"]
        if steps:
            return int(steps[-1])
        time.sleep(0.05)
    raise AssertionError("no step was taken")


def test_asked_to_stop_they_stop_together_and_go_on_where_they_were(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    running = started(folder, **{"train.steps": 4000, "train.validate_every": 4000, "train.log_every": 1})
    stepping(folder)
    for process in running:
        process.send_signal(signal.SIGINT)
    (code, told), (other, _) = ended(running)
    assert (code, other) == (130, 0)
    assert "saved; to continue: torchrun --nproc-per-node 2 -m regard train copy --set " in told
    step = Checkpoints(folder / "checkpoints").steps()[-1]
    last = stepping(folder)
    assert step == last < 4000
    running = started(folder, **{"train.steps": 4000, "train.validate_every": 4000, "train.log_every": 1})
    for _ in range(1200):
        if stepping(folder) > last:
            break
        time.sleep(0.05)
    running[0].send_signal(signal.SIGINT)
    (code, told), (other, _) = ended(running)
    assert (code, other) == (130, 0) and f"resuming at step {step} of 4000" in told


BAD = """
from regard.tasks.translate import Translate
good, calls = Translate.loss, 0

def bad(task, net, batch, smoothing):
    global calls
    loss = good(task, net, batch, smoothing)
    calls += net.training
    return type(loss)(loss.total * float("nan"), loss.plain, loss.tokens) if calls > 3 else loss

Translate.loss = bad
"""
"""After three steps, no loss is finite."""


def test_when_the_loss_is_not_finite_all_stop_with_the_same_exit_code(tmp_path: Path) -> None:
    """The leader keeps the last good weights and says which examples; nobody waits for anybody."""
    plugin = tmp_path / "bad.py"
    plugin.write_text(BAD)
    running = started(tmp_path / "run", "--plugin", str(plugin), **{"train.validate_every": 12})
    (code, told), (other, also) = ended(running)
    assert (code, other) == (4, 4), told + also
    assert "regard: step 8 was not finite (loss " in told and "gradient norm nan): example " in told
    assert "as were the 4 before it. The last finite weights, of step 3, are saved" in told
    assert "see the message of the first process" in also
    assert Checkpoints(tmp_path / "run" / "checkpoints").steps() == [8]
    assert [e["step"] for e in read_log(tmp_path / "run" / "log.jsonl") if e["event"] == "skip"] == [4, 5, 6, 7, 8]


def test_the_command_that_starts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ProcessGroup().command_line("regard train x") == "regard train x"
    assert ProcessGroup(0, 2).command_line("regard train x") == "torchrun --nproc-per-node 2 -m regard train x"
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert (
        ProcessGroup(0, 6).command_line("regard train x") == "torchrun --nnodes 3 --nproc-per-node 2 -m regard train x"
    )


def test_only_on_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SpecError, match="several processes can only train on the CPU so far, not on 'cuda'"):
        ProcessGroup.join("cuda")


def test_alone_there_is_nothing_to_sum() -> None:
    alone = ProcessGroup()
    assert (
        alone.is_leader
        and alone.announce_step(7) == 7
        and alone.sum_gradients([], 2.5) == 2.5
        and alone.share([1, 2]) == [1, 2]
    )
    alone.wait()
    with alone:
        pass
