"""HTTP load from a process of its own: requests over raw sockets, answers timed.

Clients of a library would take more time than a fast server does; these write prepared bytes, and read only the status and the
length of an answer. `python -m bench.http_load` reads an order as JSON and writes what clients saw.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from bench.launch import Process, start

LENGTH = re.compile(rb"content-length: *(\d+)", re.I)
DRAIN_SECONDS = 30.0
"""How long an answer may take."""
RETRY_SECONDS = 0.1
"""Pause of a client whose request failed."""


@dataclass
class Order:
    """What to send: `clients` that ask again as soon as they have an answer, or `rate` requests a second at random times."""

    port: int
    path: str
    bodies: list[str]
    seconds: float
    clients: int = 0
    rate: float = 0.0
    method: str = "POST"
    key: str = ""
    """An API key, if the server wants one."""
    keeps: bool = True
    """Use a connection again; otherwise each request has one of its own."""


@dataclass
class Load:
    """What clients saw."""

    seconds: float = 0.0
    done: list[float] = field(default_factory=list)
    """Seconds of each answer."""
    refused: list[float] = field(default_factory=list)
    failed: int = 0
    cpu_seconds: float = 0.0
    """Of the process that made the load."""

    @property
    def throughput(self) -> float:
        """Answers per second."""
        return len(self.done) / self.seconds


class Connection:
    """One that stays open for many requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, request: bytes) -> int:
        """The status of the answer."""
        self.writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = LENGTH.search(head)
        await self._reader.readexactly(int(length[1]) if length else 0)
        return int(head[9:12])


class Driver:
    """Carries out an order."""

    def __init__(self, order: Order) -> None:
        self._order, self.load, self._free = order, Load(), list[Connection]()
        head = f"{order.method} {order.path} HTTP/1.1\r\nHost: localhost\r\n"
        head += f"Authorization: Bearer {order.key}\r\n" if order.key else ""
        head += "" if order.keeps else "Connection: close\r\n"
        head += "Content-Type: application/json\r\nContent-Length: "
        self._requests = [
            head.encode() + str(len(body)).encode() + b"\r\n\r\n" + body for body in map(str.encode, order.bodies)
        ]

    async def run(self) -> Load:
        began = time.perf_counter()
        await (self._run_closed(began) if self._order.clients else self._run_open(began))
        self.load.seconds = time.perf_counter() - began
        self.load.cpu_seconds = time.process_time()
        return self.load

    async def _run_closed(self, began: float) -> None:
        async def client(number: int) -> None:
            draw = random.Random(number)
            while time.perf_counter() < began + self._order.seconds:
                await self._ask(draw.choice(self._requests))

        await asyncio.gather(*(client(i) for i in range(self._order.clients)))

    async def _run_open(self, began: float) -> None:
        draw, tasks, due = random.Random(0), set[asyncio.Task[None]](), began
        while due < began + self._order.seconds:
            due += draw.expovariate(self._order.rate)
            if (pause := due - time.perf_counter()) > 0.001:
                await asyncio.sleep(pause)
            task = asyncio.create_task(self._ask(draw.choice(self._requests)))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        if tasks:
            await asyncio.wait(tasks)

    async def _ask(self, request: bytes) -> None:
        began = time.perf_counter()
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                connection = self._free.pop() if self._free else await Connection.open(self._order.port)
                status = await connection.ask(request)
        except (OSError, EOFError):  # a TimeoutError is an OSError
            self.load.failed += 1
            await asyncio.sleep(RETRY_SECONDS)
            return
        if self._order.keeps:
            self._free.append(connection)
        else:
            connection.writer.close()
        taken = time.perf_counter() - began
        if status == 200:
            self.load.done.append(taken)
        elif status in (429, 503):
            self.load.refused.append(taken)
        else:
            self.load.failed += 1


def start_load(order: Order) -> Process:
    """Start a load; `finish_load` waits for its end."""
    process = start(["bench.http_load"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(json.dumps(asdict(order)))
    process.stdin.close()
    return process


def finish_load(process: Process) -> Load:
    """What the clients saw."""
    assert process.stdout is not None
    said = process.stdout.read()
    process.stdout.close()
    if process.wait():
        raise SystemExit("the load generator failed")
    return Load(**json.loads(said))


def summarize(seconds: Sequence[float]) -> dict[str, float]:
    """Median and 99th percentile in milliseconds."""
    if not seconds:
        raise SystemExit("no request was answered, so there is nothing to measure")
    ranked = sorted(seconds)
    return {
        "median_ms": round(1000 * ranked[len(ranked) // 2], 1),
        "p99_ms": round(1000 * ranked[int(0.99 * (len(ranked) - 1))], 1),
    }


if __name__ == "__main__":
    print(json.dumps(asdict(asyncio.run(Driver(Order(**json.load(sys.stdin))).run()))))
