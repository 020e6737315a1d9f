"""A server under load: throughput, latency, overload.

    python -m bench.serve runs/multi30k shared/data/multi30k/test.en

Measures `regard serve` with one client at a time and with 32, latency at half of the highest throughput, and what happens at
twice and ten times as many clients; and, in the same run, CTranslate2 behind FastAPI, which decodes each request by itself.
Clients run on the same machine, so that they take some of its time from both servers alike.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import uvicorn
from fastapi import FastAPI

from bench.results import parse, write

CLIENTS = 32
OVERLOADS = (2, 10)


@dataclass
class Load:
    """What clients saw."""

    seconds: float
    done: list[float] = field(default_factory=list)
    """Seconds of each answer."""
    refused: list[float] = field(default_factory=list)
    failed: int = 0

    @property
    def throughput(self) -> float:
        return len(self.done) / self.seconds

    def plain(self) -> dict[str, float]:
        ranked = sorted(self.done) or [float("nan")]
        return {
            "sentences_per_second": round(self.throughput, 2),
            "median_ms": round(1000 * statistics.median(ranked), 1),
            "p99_ms": round(1000 * ranked[int(0.99 * (len(ranked) - 1))], 1),
            "refused": len(self.refused),
            "slowest_refusal_ms": round(1000 * max(self.refused, default=0.0), 1),
            "failed": self.failed,
        }


async def ask(http: httpx.AsyncClient, text: str, load: Load) -> None:
    began = time.perf_counter()
    try:
        answer = await http.post("/run", json={"inputs": [text]})
    except httpx.HTTPError:
        load.failed += 1
        return
    taken = time.perf_counter() - began
    if answer.status_code == 200:
        load.done.append(taken)
    elif answer.status_code in (429, 503):
        load.refused.append(taken)
        await asyncio.sleep(0.05)
    else:
        load.failed += 1


async def drive_closed(address: str, lines: Sequence[str], clients: int, seconds: float) -> Load:
    """Each client asks again as soon as it has its answer."""
    load, end = Load(seconds), time.perf_counter() + seconds
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with httpx.AsyncClient(base_url=address, timeout=120, limits=limits, trust_env=False) as http:

        async def client(number: int) -> None:
            draw = random.Random(number)
            while time.perf_counter() < end:
                await ask(http, draw.choice(lines), load)

        await asyncio.gather(*(client(i) for i in range(clients)))
    return load


async def drive_open(address: str, lines: Sequence[str], rate: float, seconds: float) -> Load:
    """Requests come at random times, `rate` a second on average, whether others are answered or not."""
    load, draw, tasks = Load(seconds), random.Random(0), list[asyncio.Task[None]]()
    async with httpx.AsyncClient(base_url=address, timeout=120, trust_env=False) as http:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            await asyncio.sleep(draw.expovariate(rate))
            tasks.append(asyncio.create_task(ask(http, draw.choice(lines), load)))
        await asyncio.gather(*tasks)
    return load


@contextmanager
def start(command: Sequence[str]) -> Iterator[tuple[str, int]]:
    """A server in a process of its own: its address and process id."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("w") as out:
            process = subprocess.Popen([sys.executable, "-m", *command], stderr=out, stdout=out)
        try:
            while not (found := re.search(r"on (http://\S+)", log.read_text())):
                if process.poll() is not None:
                    raise SystemExit(log.read_text())
                time.sleep(0.1)
            yield found[1], process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def measure_memory(pid: int) -> int:
    """Bytes of a process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    pages = [int(Path(f"/proc/{each}/statm").read_text().split()[1]) for each in (pid, *children)]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE")


def measure_server(
    command: Sequence[str], lines: Sequence[str], seconds: float, *, overload: bool
) -> dict[str, object]:
    with start(command) as (address, pid):
        asyncio.run(drive_closed(address, lines, 4, min(seconds, 2.0)))  # warm up
        alone = asyncio.run(drive_closed(address, lines, 1, seconds))
        many = asyncio.run(drive_closed(address, lines, CLIENTS, seconds))
        half = asyncio.run(drive_open(address, lines, many.throughput / 2, seconds))
        out: dict[str, object] = {
            "one at a time": alone.plain(),
            f"{CLIENTS} clients": many.plain(),
            "half load": half.plain(),
            "speedup": round(many.throughput / alone.throughput, 2),
        }
        if overload:
            before = measure_memory(pid)
            for times in OVERLOADS:
                load = asyncio.run(drive_closed(address, lines, CLIENTS * times, seconds))
                out[f"{times} × {CLIENTS} clients"] = load.plain() | {
                    "of_peak": round(load.throughput / many.throughput, 3),
                    "memory_growth": round(measure_memory(pid) / before - 1, 3),
                }
            began = time.perf_counter()
            load = asyncio.run(drive_closed(address, lines, 1, 0.01))
            out["recovery_seconds"] = round(time.perf_counter() - began, 3) if load.done else None
    return out


def serve_peer(folder: str, port: int) -> None:
    """CTranslate2 behind FastAPI: a thread per request, each decoded by itself."""
    import regard

    model, app = regard.load(folder, engine="ctranslate2"), FastAPI()

    @app.post("/run")
    def run(body: dict[str, list[str]]) -> dict[str, list[str]]:
        return {"outputs": model.run(body["inputs"])}

    uvicorn.run(app, host="127.0.0.1", port=port, access_log=False)


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.serve", description=__doc__)
    parser.add_argument("model", help="a model of the task translate")
    parser.add_argument("text", help="a file of sentences to translate")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    parser.add_argument("--peer-port", type=int, default=5987)
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    asked = parse(parser, words)
    if asked.peer:
        serve_peer(asked.model, asked.peer_port)
        return
    lines = [line for line in Path(asked.text).read_text(encoding="utf-8").splitlines() if line.strip()][:1000]
    limits = ["--limit", "requests=64", "--limit", "client_requests=64"]
    found: dict[str, object] = {}
    for engine in ("torch", "native"):
        command = ["regard", "serve", f"model={asked.model}", "--port", "0", "--engine", engine, *limits]
        found[engine] = measure_server(command, lines, asked.seconds, overload=True)
    peer = ["bench.serve", asked.model, asked.text, "--peer", "--peer-port", str(asked.peer_port)]
    found["ctranslate2 behind fastapi"] = measure_server(peer, lines, asked.seconds, overload=False)
    command = f"python -m bench.serve {asked.model} {asked.text} --seconds {asked.seconds:g}"
    print(write("bench-serve", title="A server under load", command=command, figures=found).read_text())


if __name__ == "__main__":
    main(sys.argv[1:])
