"""A server in a process of its own, and tiny models to serve."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from regard.training.train import run_training
from tests.laws.tasks import TASK, order_of
from tests.laws.uses import USES

START_SECONDS = 120.0
KEY = "a-key-that-is-long-enough"


def make_models(folder: Path) -> dict[str, Path]:
    """A tiny model of every task that can be served."""
    shapes = (("translate", "copy"), ("lm", "documents"), ("mlm", "bert"))
    out = {task: make_model(task, shape, folder) for task, shape in shapes}
    for use in USES:
        if use.task not in out:
            files = folder / f"{use.task}-files"
            files.mkdir()
            run_training(use.order(files, folder / use.task))
            out[use.task] = folder / use.task
    return out


def make_model(task: str, shape: str, folder: Path) -> Path:
    """A tiny model of one task."""
    files = folder / f"{task}-files"
    files.mkdir()
    run_training(order_of(TASK[task][shape], files, folder / task, train__steps=2))
    return folder / task


@dataclass
class Running:
    """A server that was started."""

    process: subprocess.Popen[str]
    address: str
    log: Path

    def client(self, key: str | None = None, **more: object) -> httpx.Client:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return httpx.Client(base_url=self.address, headers=headers, timeout=60, trust_env=False, **more)  # type: ignore[arg-type]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def inference_pid(self) -> int:
        """The child that computes."""
        pid = self.process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def list_processes(self) -> list[int]:
        """The server and what it started."""
        found = [self.process.pid]
        for pid in found:
            found += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        return found

    def measure_cpu(self) -> float:
        """Seconds of a core that the server used so far."""
        fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in self.list_processes()]
        return sum(int(each[11]) + int(each[12]) for each in fields) / os.sysconf("SC_CLK_TCK")

    def measure_wait(self) -> float:
        """Seconds that the process that answers was ready to run and had no core, because others had them all."""
        return int(Path(f"/proc/{self.process.pid}/schedstat").read_text().split()[1]) / 1e9

    def wait_ready(self, seconds: float = START_SECONDS) -> None:
        end = time.monotonic() + seconds
        with self.client() as http:
            while http.get("/readyz").status_code != 200:
                assert time.monotonic() < end, self.log.read_text()
                time.sleep(0.05)


@contextmanager
def start_server(
    models: Mapping[str, Path],
    folder: Path,
    options: Sequence[str] = (),
    keys: Sequence[str] = (),
    files: int | None = None,
) -> Iterator[Running]:
    """`regard serve` on a free port of this machine, until the end of the block."""
    arguments = [*(f"{name}={path}" for name, path in models.items()), "--port", "0", *options]
    if keys:
        (folder / "keys").write_text("\n".join(keys))
        arguments += ["--key-file", str(folder / "keys")]
    with start_module(["regard", "serve", *arguments], folder / "server.log", files) as running:
        yield running


@contextmanager
def start_module(words: Sequence[str], log: Path, files: int | None = None) -> Iterator[Running]:
    """A server that is a module of Python, until the end of the block; it may open so many `files`."""
    environment = {k: v for k, v in os.environ.items() if k != "REGARD_API_KEY"} | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", *words]
    if files is not None:
        command = ["sh", "-c", f'ulimit -n {files} && exec "$@"', "sh", *command]
    with log.open("w") as out:
        process = subprocess.Popen(command, stderr=out, stdout=out, text=True, env=environment)
    try:
        end = time.monotonic() + START_SECONDS
        while not (found := re.search(r" on (https?://\S+)", log.read_text())):
            assert process.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(0.05)
        yield Running(process, found[1], log)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
