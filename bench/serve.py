"""A server under load: throughput, latency, overload.

    python -m bench.serve                # the model of `python -m bench.precision`, trained first if it is not there
    python -m bench.serve MODEL test.en

Measures `regard serve` with one request at a time and with 32 clients, latency at half of the highest throughput, and what
happens when twice and ten times as many requests come as it can answer; beside it, in the same run, the same engine without a
server (batches of 32), and CTranslate2 behind FastAPI, which decodes each request by itself. Every server computes with
`--threads` threads, by default all cores but one: the API process and the clients, whose time is stated, need some, too.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from bench.entry import Mode, choose, parse
from bench.http_load import Load, Order, finish_load, start_load, summarize
from bench.launch import Process, call, start
from bench.results import write
from bench.target import lines as read_test
from bench.target import train_some

PEER = "ctranslate2 behind fastapi"
CONTENDERS = ("regard", PEER)
CLIENTS = 32
OVERLOADS = (2, 10)
SLOTS = 256
LIMITS = ("--limit", "requests=96", "--limit", "client_requests=96")
TICKS = os.sysconf("SC_CLK_TCK")


class RunningServer:
    """A server in a process of its own."""

    def __init__(self, process: Process, port: int, lines: Sequence[str]) -> None:
        self.port, self._pid = port, process.pid
        self._bodies = [json.dumps({"inputs": [line]}) for line in lines]

    def drive(self, seconds: float, *, clients: int = 0, rate: float = 0.0) -> tuple[Load, dict[str, object]]:
        """Put it under load: what clients saw, and what that cost."""
        before, peak, stop = self._measure_cpu(), [0], threading.Event()

        def watch() -> None:
            while not stop.wait(0.1):
                peak[0] = max(peak[0], self.measure_memory())

        watcher = threading.Thread(target=watch)
        watcher.start()
        load = finish_load(start_load(Order(self.port, "/run", self._bodies, seconds, clients, rate)))
        stop.set()
        watcher.join()
        count = max(len(load.done), 1)
        cost = {
            name: round(1000 * (now - then) / count, 2)
            for (name, then), now in zip(before.items(), self._measure_cpu().values(), strict=True)
        }
        facts: dict[str, object] = {
            "sentences_per_second": round(load.throughput, 2),
            **summarize(load.done),
            "cpu_ms_per_sentence": cost | {"clients": round(1000 * load.cpu_seconds / count, 2)},
            "peak_memory_mb": round(peak[0] / 1e6, 1),
        }
        if load.refused:
            slowest = {"slowest_ms": round(1000 * max(load.refused), 1)}
            facts |= {"refused": len(load.refused), "refusal_ms": summarize(load.refused) | slowest}
        if load.refused or load.failed:
            facts["failed"] = load.failed
        return load, facts

    def _list_processes(self) -> dict[str, int]:
        children = Path(f"/proc/{self._pid}/task/{self._pid}/children").read_text().split()
        return dict(zip(("api", "inference"), (self._pid, *map(int, children)), strict=False))

    def _measure_cpu(self) -> dict[str, float]:
        """Seconds of each process so far."""
        out = {}
        for name, pid in self._list_processes().items():
            numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            out[name] = (int(numbers[11]) + int(numbers[12])) / TICKS
        return out

    def measure_memory(self) -> int:
        """Bytes of all processes."""
        pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self._list_processes().values()]
        return sum(pages) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def start_server(command: Sequence[str], lines: Sequence[str], threads: int) -> Iterator[RunningServer]:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
        with log.open("w") as out:
            process = start(command, stderr=out, stdout=out, environment=environment)
        try:
            while not (found := re.search(r"on http://\S+:(\d+)", log.read_text())):
                if process.poll() is not None:
                    raise SystemExit(log.read_text())
                time.sleep(0.1)
            yield RunningServer(process, int(found[1]), lines)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def measure_server(server: RunningServer, seconds: float, *, overload: bool) -> dict[str, object]:
    if not Mode.smoke:
        server.drive(min(seconds, 3.0), clients=CLIENTS)  # warm up
    alone, alone_facts = server.drive(seconds, clients=1)
    many, many_facts = server.drive(seconds, clients=CLIENTS)
    half, half_facts = server.drive(seconds, rate=many.throughput / 2)
    median, p99 = summarize(alone.done)["median_ms"], summarize(half.done)["p99_ms"]
    out: dict[str, object] = {
        "one at a time": alone_facts,
        f"{CLIENTS} clients": many_facts,
        "half load": half_facts | {"p99_to_unloaded_median": round(p99 / median, 2)},
        "speedup": round(many.throughput / alone.throughput, 2),
    }
    if overload:
        before = server.measure_memory()
        for times in OVERLOADS:
            load, facts = server.drive(seconds, rate=times * many.throughput)
            memory = float(str(facts["peak_memory_mb"])) * 1e6
            out[f"{times} × capacity"] = facts | {
                "of_peak": round(load.throughput / many.throughput, 3),
                "memory_growth": round(memory / before - 1, 3),
            }
        out["recovery_seconds"] = measure_recovery(server, 2 * median / 1000)
    return out


def measure_recovery(server: RunningServer, seconds: float) -> float:
    """The time until a request is answered as quickly as `seconds`."""
    began = time.perf_counter()
    while True:
        load, _ = server.drive(0.01, clients=1)
        if load.done and load.done[-1] <= seconds:
            return round(time.perf_counter() - began, 2)


def measure_offline(folder: str, engine: str, lines: Sequence[str], seconds: float) -> float:
    """Sentences per second in batches of 32, without a server."""
    import regard

    model, count, some = regard.load(folder, engine=engine), 0, list(lines)
    model.run(some[:CLIENTS])
    began = time.perf_counter()
    while time.perf_counter() < began + seconds:
        at = count % max(len(some) - CLIENTS, 1)
        count += len(model.run(some[at : at + CLIENTS]))
    return count / (time.perf_counter() - began)


def serve_peer(folder: str, port: int) -> None:
    """CTranslate2 behind FastAPI: a thread per request, each decoded by itself."""
    import regard
    from bench.ctranslate2_engine import CTranslate2Engine
    from regard.engine.native_engine import read_threads

    model, app = regard.load(folder, engine="torch"), FastAPI()
    model.engine = CTranslate2Engine(model.net, threads=read_threads())

    @app.post("/run")
    def run(body: dict[str, list[str]]) -> dict[str, list[str]]:
        return {"outputs": model.run(body["inputs"])}

    uvicorn.run(app, host="127.0.0.1", port=port, access_log=False)


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.serve", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", help="a model of the task translate; else one of Multi30k is trained first")
    parser.add_argument("text", nargs="?", help="a file of sentences to translate; else the test of Multi30k")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    parser.add_argument("--threads", type=int, default=max((os.cpu_count() or 2) - 1, 1), help="that compute")
    parser.add_argument("--engines", default="torch,native")
    parser.add_argument("--peer-port", type=int, default=5987)
    parser.add_argument("--part", choices=("peer", "offline"), help=argparse.SUPPRESS)
    asked = parse(parser, words, out="runs/precision", contenders=CONTENDERS)
    names = [] if asked.part else choose(asked, CONTENDERS)
    if asked.smoke:
        asked.seconds = min(asked.seconds, 0.2)
    if asked.text is None:
        asked.model = asked.model or str(train_some(asked.out))
        asked.text = str(asked.out / "test.en")
        Path(asked.text).write_text("".join(f"{line}\n" for line in read_test("test.2016.en.gz")), encoding="utf-8")
    lines = [line for line in Path(asked.text).read_text(encoding="utf-8").splitlines() if line.strip()][:1000]
    if asked.part == "peer":
        serve_peer(asked.model, asked.peer_port)
        return
    if asked.part == "offline":
        print(measure_offline(asked.model, asked.engines, lines, asked.seconds))
        return
    engines = asked.engines.split(",") if "regard" in names else []
    found: dict[str, dict[str, object]] = {}
    for engine in engines:
        command = ["regard", "serve", f"model={asked.model}", "--port", "0", "--engine", engine]
        with start_server([*command, "--slots", str(SLOTS), *LIMITS], lines, asked.threads) as server:
            found[engine] = measure_server(server, asked.seconds, overload=True)
        offline = run_part("offline", asked, engine)
        served = found[engine][f"{CLIENTS} clients"]
        assert isinstance(served, dict)
        found[engine] |= {
            f"offline batches of {CLIENTS}": round(offline, 2),
            "of_offline": round(served["sentences_per_second"] / offline, 3),
        }
    if PEER in names:
        peer = ["bench.serve", asked.model, asked.text, "--part", "peer", "--peer-port", str(asked.peer_port)]
        with start_server(peer, lines, asked.threads) as server:
            found[PEER] = theirs = measure_server(server, asked.seconds, overload=False)
        for engine in engines:
            ours, other = (each[f"{CLIENTS} clients"] for each in (found[engine], theirs))
            assert isinstance(ours, dict) and isinstance(other, dict)
            found[engine]["to_ctranslate2"] = round(ours["sentences_per_second"] / other["sentences_per_second"], 2)
    print(json.dumps(found, indent=2))
    if not asked.only:
        print(write("bench-serve", title="A server under load", figures=found))


def run_part(part: str, asked: argparse.Namespace, engine: str) -> float:
    """A measurement in a process of its own."""
    words = [
        asked.model,
        asked.text,
        *["--smoke"] * asked.smoke,
        "--part",
        part,
        "--engines",
        engine,
        "--seconds",
        str(asked.seconds),
    ]
    environment = os.environ | {"OMP_NUM_THREADS": str(asked.threads)}
    return float(call(["bench.serve", *words], environment=environment))


if __name__ == "__main__":
    main(sys.argv[1:])
