"""Clients that leave at any point: how soon their slots are free, and what is left behind.

    python -m tests.serve.disconnects 1000

The server decodes one sequence at a time. A client asks for a long text and leaves; another then asks for one token, and has to
wait for that slot. What its answer takes longer than without the first is how long the slot was not free.
"""

from __future__ import annotations

import dataclasses
import json
import random
import re
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path

import httpx

from tests.serve.running import Running, make_model, start_server

LONG = {"model": "lm", "prompt": "the", "max_tokens": 2000, "temperature": 1.0}
SHORT = {"model": "lm", "prompt": "the", "max_tokens": 1, "temperature": 0}
ONE_SLOT = ("--slots", "1", "--limit", "seconds=30")
WITHIN = 0.25
"""Seconds in which a slot should be free."""


@dataclasses.dataclass(frozen=True)
class Left:
    """What a server holds: sockets and other files, threads, bytes."""

    files: int
    threads: int
    memory: int

    @classmethod
    def of(cls, running: Running) -> Left:
        processes = [Path(f"/proc/{pid}") for pid in running.list_processes()]
        status = "".join((each / "status").read_text() for each in processes)
        memory = sum(int(n) for n in re.findall(r"VmRSS:\s+(\d+) kB", status)) << 10
        threads = sum(int(n) for n in re.findall(r"Threads:\s+(\d+)", status))
        return cls(sum(len(list((each / "fd").iterdir())) for each in processes), threads, memory)


@dataclasses.dataclass(frozen=True)
class Found:
    """What disconnects did."""

    waits: list[float]
    """Seconds until the slot of each was free."""
    before: Left
    after: Left

    def describe(self) -> str:
        slow = sum(wait > WITHIN for wait in self.waits)
        ranked = sorted(self.waits)
        return (
            f"{len(ranked):,} disconnects: slot free after {1000 * statistics.median(ranked):.1f} ms (median), "
            f"{1000 * ranked[int(0.99 * (len(ranked) - 1))]:.1f} ms (99 %), {1000 * ranked[-1]:.1f} ms (slowest); "
            f"{slow} above {1000 * WITHIN:.0f} ms; files {self.before.files} → {self.after.files}, threads "
            f"{self.before.threads} → {self.after.threads}, memory {self.before.memory >> 20} → {self.after.memory >> 20} MB"
        )


def leave_early(address: str, body: bytes, cut: int, seconds: float, read: bool) -> None:
    """Send the beginning of a request, wait, perhaps read something, and close the connection."""
    host, _, port = address.removeprefix("http://").partition(":")
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: "
    request = head.encode() + f"{len(body)}\r\n\r\n".encode() + body
    with socket.create_connection((host, int(port)), timeout=10) as sock:
        sock.sendall(request[:cut])
        time.sleep(seconds)
        if read:
            sock.settimeout(5)
            sock.recv(200)


def disconnect_many(running: Running, count: int, seed: int) -> Found:
    """Let clients leave, one after another, at points chosen at random."""
    draw, waits = random.Random(seed), list[float]()
    with running.client() as http:
        usual = statistics.median(ask_short(http) for _ in range(20))
        before = Left.of(running)
        for i in range(count):
            body = json.dumps(LONG | {"stream": i % 2 == 0}).encode()
            cut = 10_000 if draw.random() < 0.8 else draw.randrange(1, 200)  # most send all of it
            leave_early(running.address, body, cut, draw.random() * 0.05, read=i % 4 == 0 and cut == 10_000)
            waits.append(max(ask_short(http) - usual, 0.0))
        wait_idle(http)
    return Found(waits, before, Left.of(running))


def ask_short(http: httpx.Client) -> float:
    """Seconds until another client has its token."""
    began = time.perf_counter()
    answer = http.post("/v1/completions", json=SHORT)
    assert answer.status_code == 200, answer.text
    return time.perf_counter() - began


def wait_idle(http: httpx.Client, seconds: float = 20.0) -> None:
    """Wait until nothing is under way."""
    end = time.monotonic() + seconds
    names = r"^regard_(?:requests_in_flight|model_running{[^}]*}|model_waiting{[^}]*}) ([\d.]+)$"
    while sum(map(float, re.findall(names, http.get("/metrics").text, re.M))):
        assert time.monotonic() < end, "something is still under way"
        time.sleep(0.1)


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        models = {"lm": make_model("lm", "documents", Path(folder))}
        with start_server(models, Path(folder), ONE_SLOT) as running:
            disconnect_many(running, min(count, 100), seed=1)  # until it has all the threads and memory that it needs
            print(disconnect_many(running, count, seed=2).describe())
            assert "Traceback" not in running.log.read_text()


if __name__ == "__main__":
    main(int(sys.argv[1]))
