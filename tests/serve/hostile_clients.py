"""Attackers beside clients who mean well: what the latter notice, and what the server costs.

    python -m tests.serve.hostile_clients --seconds 10

For each attack a server is started, and beside it, in the same run, a bare one (`bare_server.py`), which shows what the machine
itself does. Attackers are another client than those who mean well, and have half a core. One client asks /healthz over new
connections, others ask a model as fast as it answers, first alone and then during the attack.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from bench.entry import parse
from bench.http_load import Load, Order, finish_load, start_load, summarize
from bench.results import write

from regard.serve.app import ROUTES
from tests.serve.attackers import ATTACKS, AttackOrder, Seen, finish_attackers, start_attackers
from tests.serve.disconnects import Left, wait_idle
from tests.serve.fuzz import GOOD, make_request
from tests.serve.running import KEY, Running, make_model, make_models, start_module

OWN_KEY = "the-key-of-an-attacker"
DEADLINE = 5.0
"""Seconds that the server has for an answer."""
OPTIONS = ("--limit", f"seconds={DEADLINE:g}", "--limit", "body_seconds=3")
FILES = 512
"""Files that a server may open: a flood of connections is more."""
PROBES = 20.0
"""Requests of /healthz in a second."""
CLIENTS = 2
"""Who mean well and ask a model."""
ASKED = ["/run", json.dumps({"model": "translate", "inputs": "abc"})]
EXAMPLES = 3
"""Answers that are printed of those that should not be."""
RECOVERY = 30.0
"""Seconds in which a server should answer as before, once the attackers are gone."""
BOUNDS = {
    "health p99 ms": 100.0, "health worst ms": 500.0, "health failed": 0, "slowest s": DEADLINE + 1, "unanswered": 0,
    "failed": 0, "memory MB": 200.0, "log MB/min": 1.0, "tracebacks": 0, "recovery s": RECOVERY,
}  # fmt: skip
"""What a figure may be at most."""
BY_CLOCK = ("health p99 ms", "health worst ms", "rate", "slowest s", "recovery s")
"""Figures that depend on what else the machine does."""
BUSY = 0.1
"""Of the time: what the server may wait for a core, if figures by the clock are to mean much."""
LEAST = {"rate": 0.5}
"""What a figure should be at least: answers to those who mean well, compared with those when nobody attacks. Beside it is the
same by the server's own time, which other programs do not change."""


def list_targets() -> list[dict[str, Any]]:
    """All routes, and for each that takes a body, bodies that are right."""
    missing = {route.path for route in ROUTES if route.body is not None} - {*GOOD}
    assert not missing, f"tests/serve/fuzz.py has no body for {missing}"
    return [
        {
            "method": route.method, "path": route.path.replace("{name}", "lm"), "bodies": GOOD.get(route.path, []),
            "forms": route.forms or route.files,
        }
        for route in ROUTES
    ]  # fmt: skip


def list_prepared(count: int, seed: int, key: str) -> list[tuple[str, str]]:
    """Requests of `tests.serve.fuzz` as bytes."""
    draw, out = random.Random(seed), []
    for _ in range(count):
        request = make_request(draw)
        given = {
            "host": b"localhost",
            "authorization": f"Bearer {key}".encode(),
            "connection": b"close",
        } | request.headers
        given = {"content-length": str(len(request.content)).encode(), **given}
        path = quote(request.path.encode("utf-8", "surrogatepass"))
        head = f"{request.method} {path} HTTP/1.1\r\n".encode()
        head += b"".join(name.encode() + b": " + value + b"\r\n" for name, value in given.items()) + b"\r\n"
        out.append(
            (request.path.encode("utf-8", "replace").decode(), base64.b64encode(head + request.content).decode())
        )
    return out


@contextmanager
def start_attacked(models: Mapping[str, Path], folder: Path) -> Iterator[Running]:
    """A server with the runs, few files, and one key for those who mean well and one for attackers."""
    (folder / "keys").write_text(f"{KEY}\n{OWN_KEY}\n")
    words = ["regard", "serve", *(f"{name}={path}" for name, path in models.items()), "--port", "0", *OPTIONS]
    words += ["--key-file", str(folder / "keys"), "--runs", str(models["lm"].parent)]
    with start_module(words, folder / "server.log", FILES) as running:
        running.wait_ready()
        with running.client(KEY) as http:
            for path, bodies in GOOD.items():  # until it has all the threads and memory that it needs
                for body in bodies:
                    http.post(path, json=body)
        yield running


@contextmanager
def start_bare(folder: Path) -> Iterator[Running]:
    with start_module(["tests.serve.bare_server"], folder / "bare.log", FILES) as running:
        yield running


@dataclass
class Watched:
    """The most memory that a server took, while somebody looked."""

    most: int = 0


@contextmanager
def watch_memory(running: Running) -> Iterator[Watched]:
    """Look at the memory of a server until the end of the block."""
    stop, watched = threading.Event(), Watched()

    def look() -> None:
        while not stop.wait(0.1):
            with suppress(OSError):  # a process may end while it is looked at
                watched.most = max(watched.most, Left.of(running).memory)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield watched
    finally:
        stop.set()
        thread.join()


@dataclass(frozen=True)
class Noticed:
    """What clients who mean well noticed."""

    health: Load
    answers: Load
    cpu_seconds: float
    """Of the server meanwhile, which do not depend on other programs on this machine."""

    @property
    def rate(self) -> float:
        """Answers in a second."""
        return len(self.answers.done) / self.answers.seconds

    @property
    def cpu_rate(self) -> float:
        """Answers in a second of the server's own time."""
        return len(self.answers.done) / max(self.cpu_seconds, 0.01)


def ask_politely(running: Running, seconds: float) -> Noticed:
    """Ask /healthz over new connections, and a model as fast as it answers."""
    port, (path, body), before = running.port, ASKED, running.measure_cpu()
    health = start_load(Order(port, "/healthz", [""], seconds, rate=PROBES, method="GET", keeps=False))
    answers = start_load(Order(port, path, [body], seconds, clients=CLIENTS, key=KEY))
    return Noticed(finish_load(health), finish_load(answers), running.measure_cpu() - before)


@dataclass(frozen=True)
class Found:
    """What came of an attack."""

    figures: dict[str, Any]
    seen: dict[str, Seen]

    def list_faults(self) -> list[str]:
        """Figures that are out of bounds."""
        over = [(name, f"at most {most:g}") for name, most in BOUNDS.items() if self.figures[name] > most]
        over += [(name, f"at least {least:g}") for name, least in LEAST.items() if self.figures[name] < least]
        share = self.figures["waited for a core"]
        busy = f"; the machine was busy: it waited for a core in {share:.0%} of the time" if share > BUSY else ""
        return [f"{name}: {self.figures[name]:g}, {bound}{busy * (name in BY_CLOCK)}" for name, bound in over]

    def list_figures(self) -> dict[str, Any]:
        """The figures as JSON can hold them: what never came is no number."""
        return {name: "never" if value == float("inf") else value for name, value in self.figures.items()}

    def list_examples(self) -> list[str]:
        found = [text for seen in self.seen.values() for text in (*seen.failed, *seen.unanswered) if text]
        return [text if len(text) <= 400 else f"{text[:300]} … {text[-100:]}" for text in found]


def measure_attack(
    running: Running, names: Sequence[str], seconds: float, connections: int = 0, seed: int = 0
) -> Found:
    """Attack a server, and ask it politely before, meanwhile and afterwards."""
    size = running.log.stat().st_size
    alone = [ask_politely(running, seconds / 2)]
    before, log, wait = Left.of(running), running.log.stat().st_size, running.measure_wait()
    per_answer = (log - size) / max(len(alone[0].answers.done), 1)
    targets, prepared = list_targets(), list_prepared(200, seed, OWN_KEY)
    order = AttackOrder(
        running.port, [*names], seconds + 0.5, DEADLINE, targets, [OWN_KEY], prepared, seed, connections
    )
    with watch_memory(running) as watched:
        attackers, began = start_attackers(order), time.monotonic()
        noticed = ask_politely(running, seconds)
        seen = finish_attackers(attackers)
        took, waited = time.monotonic() - began, running.measure_wait() - wait
        recovery = wait_recovered(running)
    grown = running.log.stat().st_size - log - per_answer * len(noticed.answers.done)
    if recovery <= RECOVERY:
        alone.append(ask_politely(running, seconds / 2))
    figures = {
        **describe_noticed(noticed, alone),
        **describe_seen(seen),
        "memory MB": round((watched.most - before.memory) / 1e6, 1),
        "log MB/min": round(max(grown, 0) / 1e6 / (took / 60), 3),
        "tracebacks": running.log.read_text(errors="replace").count("Traceback (most recent call last)"),
        "recovery s": round(recovery, 1),
        "waited for a core": round(waited / took, 3),
        "attackers' cores": round(max(each.cpu_seconds for each in seen.values()) / took, 2),
    }
    return Found(figures, seen)


def describe_noticed(noticed: Noticed, alone: Sequence[Noticed]) -> dict[str, Any]:
    """What clients who mean well noticed, compared with when nobody attacked."""
    usual, usual_by_cpu = (sum(each) / len(alone) for each in ([n.rate for n in alone], [n.cpu_rate for n in alone]))
    health = noticed.health
    return {
        "health p99 ms": summarize(health.done)["p99_ms"] if health.done else float("inf"),
        "health worst ms": round(1000 * max(health.done, default=float("inf")), 1),
        "health failed": health.failed + len(health.refused),
        "rate": round(noticed.rate / max(usual, 1e-9), 2),
        "rate by CPU": round(noticed.cpu_rate / max(usual_by_cpu, 1e-9), 2),
        "alone per s": round(usual, 1),
    }


def describe_seen(seen: Mapping[str, Seen]) -> dict[str, Any]:
    """What attackers saw."""
    slowest, statuses = max(seen.values(), key=lambda each: each.slowest), Counter[str]()
    for each in seen.values():
        statuses.update(each.statuses)
    return {
        "slowest s": round(slowest.slowest, 2),
        "slowest path": slowest.slowest_path,
        "unanswered": sum(len(each.unanswered) for each in seen.values()),
        "cut off": sum(each.cut_off for each in seen.values()),
        "failed": sum(len(each.failed) for each in seen.values()),
        "visits": sum(each.visits for each in seen.values()),
        "refused": sum(each.refused for each in seen.values()),
        "statuses": dict(sorted(statuses.items())),
        "longest open s": round(max(each.longest_open for each in seen.values()), 1),
        "sent MB": round(sum(each.sent for each in seen.values()) / 1e6, 1),
    }


def wait_recovered(running: Running) -> float:
    """Seconds until the server answers and nothing is under way; infinite if that is never."""
    began = time.monotonic()
    headers = {"Authorization": f"Bearer {KEY}"}
    with httpx.Client(base_url=running.address, headers=headers, timeout=2.0, trust_env=False) as http:
        while time.monotonic() < began + RECOVERY:
            with suppress(httpx.HTTPError):
                if http.get("/readyz").status_code == 200 and http.post(ASKED[0], content=ASKED[1]).status_code == 200:
                    with suppress(AssertionError):
                        wait_idle(http, 1.0)
                        return time.monotonic() - began
            time.sleep(0.1)
    return float("inf")


def measure(
    names: Sequence[str], models: Mapping[str, Path], folder: Path, seconds: float, connections: int = 0
) -> dict[str, dict[str, Found]]:
    """Each attack on each server, which is started anew."""
    found: dict[str, dict[str, Found]] = {}
    for name in names:
        with start_bare(folder) as running:
            bare = measure_attack(running, [name], seconds, connections)
        with start_attacked(models, folder) as running:
            ours = measure_attack(running, [name], seconds, connections)
        found[name] = {"regard": ours, "bare": bare}
        print(format_row(name, ours, bare), flush=True)
        for text in (*ours.list_faults(), *ours.list_examples()[:EXAMPLES]):
            print(f"    {text}", flush=True)
    return found


COLUMNS = (
    "health p99 ms", "health worst ms", "health failed", "rate", "rate by CPU", "slowest s", "unanswered", "cut off",
    "failed", "memory MB", "log MB/min", "tracebacks", "recovery s", "waited for a core",
)  # fmt: skip


SHOWN, SUMMED, WORST = (
    ("health p99 ms", "rate", "rate by CPU"),
    ("failed", "unanswered", "tracebacks"),
    ("memory MB", "log MB/min"),
)


def format_row(name: str, ours: Found, bare: Found) -> str:
    """Figures of ours beside those of the bare server."""
    pairs = (f"{ours.figures[column]:g}|{bare.figures[column]:g}" for column in COLUMNS)
    return f"{name:26}" + "".join(f"{pair:>16}" for pair in pairs)


def tabulate(found: Mapping[str, Mapping[str, Found]]) -> dict[str, Any]:
    """The figures that readers look for: the worst over all attacks, then each attack beside the bare server."""
    ours = {name: both["regard"] for name, both in found.items()}
    worst = {f"most {name}": max(one.figures[name] for one in ours.values()) for name in WORST}
    return {
        "attacks": len(found),
        "within all bounds": sum(not one.list_faults() for one in ours.values()),
        **{name: sum(one.figures[name] for one in ours.values()) for name in SUMMED},
        **worst,
    } | {
        name: {
            f"{words}{column}": both[which].list_figures()[column]
            for column in SHOWN
            for which, words in (("regard", ""), ("bare", "bare: "))
        }
        for name, both in found.items()
    }


def make_served(folder: Path) -> dict[str, Path]:
    """A tiny model of every task that can be served, one that fills spans, and one that chats."""
    from tests.serve.chat_models import make_chatml

    return make_models(folder) | {"span": make_model("span", "t5", folder), "chat": make_chatml(folder / "chat").path}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.serve.hostile_clients", description=__doc__)
    parser.add_argument("attacks", nargs="*", default=[*ATTACKS], help="which; by default all")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each attack")
    asked = parse(parser, words)
    attacks, seconds, connections = asked.attacks, asked.seconds, 0
    if asked.smoke:
        attacks, seconds, connections = attacks[:1], 1.0, 1
    with tempfile.TemporaryDirectory() as name:
        models = make_served(Path(name))
        print(f"{'ours|bare':26}" + "".join(f"{column:>16}" for column in COLUMNS))
        found = measure(attacks, models, Path(name), seconds, connections)
    faults = {name: both["regard"].list_faults() for name, both in found.items() if both["regard"].list_faults()}
    rows = {name: {which: one.list_figures() for which, one in both.items()} for name, both in found.items()}
    load = " ".join(Path("/proc/loadavg").read_text().split()[:3])
    path = write(
        "hostile-clients", title="Attackers beside clients who mean well", figures=tabulate(found),
        rows=rows, bounds={"at most": BOUNDS, "at least": LEAST}, out_of_bounds=faults, load_of_the_machine=load,
        seconds=seconds,
    )  # fmt: skip
    print(f"{len(found)} attacks, {len(faults)} out of bounds; {path}")
    return 1 if faults and not asked.smoke else 0


if __name__ == "__main__":
    raise SystemExit(main())
