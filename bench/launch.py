"""Modules as processes of their own, as `python -m`.

A smoke run of all benches would spend most of its time on importing torch some hundred times. It starts a server of forks
instead: a process that has imported everything and computed nothing, of which each new one is a copy. Whoever starts a module
here need not know: arguments, streams, environment and exit code are those of `python -m`. What a library reads from the
environment while it is imported has been read, though, such as how threads wait.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

SERVER = "REGARD_BENCH_FORKS"
"""Names the socket of a server of forks."""
STREAMS = ("stdin", "stdout", "stderr")


class Fork:
    """A process that the server started: the part of `subprocess.Popen` that benches use."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], streams: Mapping[str, object]) -> None:
        self.returncode: int | None = None
        self.stdin: IO[str] | None = None
        self.stdout: IO[str] | None = None
        self.stderr: IO[str] | None = None
        given, own = [], []
        for number, name in enumerate(STREAMS):
            asked = streams.get(name)
            if asked == subprocess.PIPE:
                read, write = os.pipe()
                theirs, ours, mode = (read, write, "w") if name == "stdin" else (write, read, "r")
                setattr(self, name, os.fdopen(ours, mode, encoding="utf-8"))
                own.append(theirs)
                given.append(theirs)
            elif asked == subprocess.DEVNULL:
                own.append(os.open(os.devnull, os.O_RDWR))
                given.append(own[-1])
            else:
                given.append(number if asked is None else asked.fileno())  # type: ignore[attr-defined]
        self._server = socket.socket(socket.AF_UNIX)
        self._server.connect(environment.get(SERVER) or os.environ[SERVER])
        order = {"words": list(words), "environment": dict(environment), "folder": str(Path.cwd())}
        body = json.dumps(order).encode()
        socket.send_fds(self._server, [len(body).to_bytes(4, "big")], given)
        self._server.sendall(body)
        for number in own:
            os.close(number)
        self._answers = self._server.makefile("r", encoding="utf-8")
        self.pid = int(self._answers.readline())

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        if self.returncode is None and select.select([self._server], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = int(self._answers.readline() or -signal.SIGKILL)
            self._answers.close()
            self._server.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


Process = subprocess.Popen[str] | Fork


def start(
    words: Sequence[str], *, environment: Mapping[str, str] | None = None, **streams: IO[str] | int | None
) -> Process:
    """Start a module with its arguments; streams as for `subprocess.Popen`, as text."""
    if SERVER in os.environ:
        sys.stdout.flush()
        sys.stderr.flush()
        return Fork(words, os.environ if environment is None else environment, streams)
    command = [sys.executable, "-m", *words]
    return subprocess.Popen(command, env=environment, text=True, encoding="utf-8", **streams)  # type: ignore[call-overload, no-any-return]


def call(words: Sequence[str], *, environment: Mapping[str, str] | None = None, quiet: bool = False) -> str:
    """Run a module to its end and return what it printed; its failure is ours."""
    process = start(words, environment=environment, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as lines:
        said = lines.read()
    if code := process.wait():
        raise SystemExit(f"{shlex.join(['python', '-m', *words])} ended with {code}; nothing is recorded")
    return said


# ---------------------------------------------------------------------------------------------------------- the server


@contextmanager
def serve_forks(modules: Sequence[str]) -> Iterator[None]:
    """A server for everything that is started inside; `modules` are what it imports before."""
    with tempfile.TemporaryDirectory(prefix="regard-forks-") as folder:
        place = Path(folder) / "socket"
        ready = Path(folder) / "ready"
        words = [sys.executable, "-m", "bench.launch", str(place), str(ready), *modules]
        environment = os.environ | {"OMP_WAIT_POLICY": "passive"}  # forks are more than processors
        server = subprocess.Popen(words, stdin=subprocess.DEVNULL, env=environment)
        try:
            while not ready.exists():
                if server.poll() is not None:
                    raise SystemExit(f"the server of forks ended with {server.returncode}")
                time.sleep(0.05)
            os.environ[SERVER] = str(place)
            yield
        finally:
            os.environ.pop(SERVER, None)
            server.terminate()
            server.wait()


def run_server(place: str, ready: str, modules: Sequence[str]) -> list[str] | None:
    """Fork for whoever connects, until it is ended; a fork returns the module and arguments that it is to run."""
    starter = os.getppid()
    for module in modules:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # a fork that collected garbage would copy all that is shared
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(place)
    listener.listen(64)
    Path(ready).touch()
    running: dict[int, socket.socket] = {}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        while os.getppid() == starter:  # else it is gone
            heard, _, _ = select.select([listener, *running.values()], [], [], 0.02)
            if listener in heard:
                client, _ = listener.accept()
                size, streams, _, _ = socket.recv_fds(client, 4, len(STREAMS))
                order = json.loads(client.makefile("rb").read(int.from_bytes(size, "big")))
                pid = os.fork()
                if pid == 0:
                    signal.signal(signal.SIGTERM, signal.SIG_DFL)
                    for each in (listener, client, *running.values()):
                        each.close()
                    running.clear()
                    _become(order, streams)
                    words: list[str] = order["words"]
                    return words
                client.sendall(f"{pid}\n".encode())
                running[pid] = client
                for stream in streams:
                    os.close(stream)
            for pid, client in list(running.items()):
                if client in heard and pid in running:  # nothing is ever sent: it is gone
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                    del running[pid]
                elif (ended := os.waitpid(pid, os.WNOHANG))[0]:
                    with suppress(BrokenPipeError):
                        client.sendall(f"{os.waitstatus_to_exitcode(ended[1])}\n".encode())
                    running.pop(pid).close()
        return None
    finally:
        for pid in running:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _become(order: Mapping[str, object], streams: Sequence[int]) -> None:
    """Take over the streams, folder and environment of the one who asked."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding="utf-8", errors=errors, closefd=False, buffering=1 if number == 2 else -1)  # noqa: SIM115
        for number, mode, errors in ((0, "r", "strict"), (1, "w", "strict"), (2, "w", "backslashreplace"))
    )
    os.environ.clear()
    os.environ.update(order["environment"])  # type: ignore[arg-type]
    os.chdir(str(order["folder"]))
    if "torch" in sys.modules and (threads := os.environ.get("OMP_NUM_THREADS")):
        sys.modules["torch"].set_num_threads(int(threads))


if __name__ == "__main__":
    _words = run_server(sys.argv[1], sys.argv[2], sys.argv[3:])
    if _words is not None:
        sys.argv = [_words[0], *_words[1:]]
        runpy.run_module(_words[0], run_name="__main__", alter_sys=True)
