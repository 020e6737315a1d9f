"""Attackers in a process of their own, held to a share of one core.

`python -m tests.serve.attackers` reads an order as JSON, makes visits over raw sockets, and writes what came of them.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import re
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field

import tests.serve.attack_bodies
import tests.serve.attack_connections  # noqa: F401
from tests.serve.attacks import ATTACKS, Attack, Attacker, End, Target, Visit

__all__ = ["ATTACKS", "AttackOrder", "Seen", "finish_attackers", "start_attackers"]

SHARE = 0.5
"""Of a core, which attackers may use."""
BURST = 0.1
"""Seconds of a core that they may use at once."""
ADDRESS = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"
"""Where attackers come from: another client than those who mean well."""
MEMORY = 2 << 30
"""Bytes that attackers may use."""
MOST = 16 << 20
"""Bytes of an answer that are read."""
SMALL = 64 << 10
"""Bytes of a request that a system holds for a server that does not read it."""
STATUS = re.compile(rb"HTTP/1\.1 ([2-5]\d\d) ")
READY = "ready"
"""What is said before the first visit."""
KEPT = 20
"""Answers of each kind of fault that are kept."""


@dataclass
class AttackOrder:
    """What to do."""

    port: int
    attacks: list[str]
    seconds: float
    deadline: float
    """Seconds in which an answer is due."""
    targets: list[dict[str, object]]
    keys: list[str]
    prepared: list[tuple[str, str]] = field(default_factory=list)
    """Paths and requests in base64."""
    seed: int = 0
    connections: int = 0
    """Of each attack at once, at most; 0: as many as it says."""


@dataclass
class Seen:
    """What came of the visits of an attack."""

    visits: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    sent: int = 0
    """Bytes."""
    refused: int = 0
    """Connections that could not be made."""
    unanswered: list[str] = field(default_factory=list)
    """Where an answer was due, and none came in time, or the connection was closed without one."""
    cut_off: int = 0
    """Connections that were closed during a large body, of which the server did not want the rest; its answer was lost."""
    slowest: float = 0.0
    """Seconds until an answer that was due had come."""
    slowest_path: str = ""
    failed: list[str] = field(default_factory=list)
    """Answers that a server should never give: 5xx, but 501, 503 and 504."""
    longest_open: float = 0.0
    """Seconds that a connection stayed open that waited for the server to close it."""
    cpu_seconds: float = 0.0
    """Of the process, for all of its attacks."""


class Attackers:
    """Carries out an order."""

    def __init__(self, order: AttackOrder) -> None:
        self._order = order
        self._prepared = [(path, base64.b64decode(data)) for path, data in order.prepared]
        self._targets = [Target(**each) for each in order.targets]  # type: ignore[arg-type]
        self.seen = {name: Seen() for name in order.attacks}
        self._statuses = {name: Counter[str]() for name in order.attacks}
        self._began, self._cpu = 0.0, 0.0

    async def run(self) -> dict[str, Seen]:
        for name in self._order.attacks:  # what is made once is made before the clock runs
            by = self._make_attacker(name, -1)
            for _ in range(50):
                ATTACKS[name].make(by)
        print(READY, flush=True)
        self._began, self._cpu = time.monotonic(), time.process_time()
        tasks = [
            asyncio.create_task(self._attack(name, ATTACKS[name], i))
            for name in self._order.attacks
            for i in range(min(self._order.connections or 1 << 30, ATTACKS[name].connections))
        ]
        await asyncio.wait(tasks, timeout=self._order.seconds + self._patience)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
        for name, each in self.seen.items():
            each.statuses, each.cpu_seconds = dict(self._statuses[name]), time.process_time() - self._cpu
        return self.seen

    @property
    def _patience(self) -> float:
        return self._order.deadline + 10.0

    @property
    def _end(self) -> float:
        return self._began + self._order.seconds

    def _make_attacker(self, name: str, number: int) -> Attacker:
        draw = random.Random(f"{self._order.seed} {name} {number}")
        return Attacker(draw, self._targets, self._order.keys, self._prepared)

    async def _attack(self, name: str, attack: Attack, number: int) -> None:
        by, seen = self._make_attacker(name, number), self.seen[name]
        while time.monotonic() < self._end:
            await self._wait_for_cpu()
            visit = attack.make(by)
            try:
                await self._visit(visit, seen, self._statuses[name])
            except ConnectionRefusedError:
                seen.refused += 1
                await asyncio.sleep(0.1)
            except OSError:
                pass  # it was closed, which a server may do to an attacker

    async def _wait_for_cpu(self) -> None:
        """Wait until the share of a core allows more."""
        used, allowed = time.process_time() - self._cpu, BURST + SHARE * (time.monotonic() - self._began)
        await asyncio.sleep(max(used - allowed, 0.0) / SHARE)

    async def _visit(self, visit: Visit, seen: Seen, statuses: Counter[str]) -> None:
        loop = asyncio.get_running_loop()
        with socket.socket() as sock:
            sock.setblocking(False)
            sock.bind((ADDRESS, 0))
            try:
                async with asyncio.timeout(self._patience):
                    await loop.sock_connect(sock, ("127.0.0.1", self._order.port))
            except TimeoutError:
                seen.refused += 1
                return
            seen.visits += 1
            opened, whole, answer = time.monotonic(), False, bytearray()
            with suppress(TimeoutError, OSError):
                whole = await self._send(sock, visit, seen)
            sent = time.monotonic()
            if visit.end in (End.LEAVE, End.RESET):
                await asyncio.sleep(visit.stay)
                if visit.end is End.RESET:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return
            if visit.end is End.HALF:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_WR)
            ended = await self._read(sock, visit, answer)
            taken = time.monotonic() - (opened if visit.end is End.HOLD else sent)
        self._note(visit, seen, statuses, bytes(answer), taken, whole, ended)

    async def _send(self, sock: socket.socket, visit: Visit, seen: Seen) -> bool:
        """Whether all of it was sent."""
        loop = asyncio.get_running_loop()
        for i, piece in enumerate(visit.pieces):
            if visit.pause and i:
                await asyncio.sleep(visit.pause)
                if time.monotonic() > self._end:
                    return False
            await self._wait_for_cpu()
            async with asyncio.timeout(self._patience):
                await loop.sock_sendall(sock, piece)
            seen.sent += len(piece)
        return True

    async def _read(self, sock: socket.socket, visit: Visit, answer: bytearray) -> bool:
        """Read to the end; whether the server closed the connection."""
        loop = asyncio.get_running_loop()
        patience = self._patience if visit.due else max(self._end - time.monotonic(), 0.1)
        try:
            async with asyncio.timeout(patience):
                while data := await loop.sock_recv(sock, 1 << 16):
                    if len(answer) < MOST:
                        answer += data
                    await self._wait_for_cpu()
        except TimeoutError:
            return False
        except OSError:
            pass
        return True

    def _note(
        self, visit: Visit, seen: Seen, statuses: Counter[str], answer: bytes, taken: float, whole: bool, ended: bool
    ) -> None:
        if visit.end is End.HOLD:
            seen.longest_open = max(seen.longest_open, taken)
        found = [each.decode() for each in STATUS.findall(answer)]
        statuses.update(found)
        for status in found:
            if status >= "500" and status not in ("501", "503", "504"):
                keep(seen.failed, f"{status} {visit.path} {visit.pieces[0][:300]!r} {answer[-200:]!r}")
        if not (visit.due and whole):
            return
        if taken > seen.slowest:
            seen.slowest, seen.slowest_path = taken, visit.path
        if ended and not found and sum(map(len, visit.pieces)) > SMALL:
            seen.cut_off += 1
        elif not ended or not found:
            what = "closed without an answer" if ended else f"no answer in {taken:.1f} s"
            keep(seen.unanswered, f"{what}: {visit.path} {visit.pieces[0][:300]!r}")


def keep(found: list[str], what: str) -> None:
    """Keep one, unless there are many."""
    found.append(what if len(found) < KEPT else "")


def start_attackers(order: AttackOrder) -> subprocess.Popen[str]:
    """Return when they begin; `finish_attackers` waits for their end."""
    process = subprocess.Popen(
        ["nice", sys.executable, "-m", "tests.serve.attackers"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(json.dumps(asdict(order)))
    process.stdin.close()
    assert process.stdout is not None and process.stdout.readline().strip() == READY, "the attackers failed"
    return process


def finish_attackers(process: subprocess.Popen[str]) -> dict[str, Seen]:
    """What came of the visits, by attack."""
    assert process.stdout is not None
    said = process.stdout.read()
    process.stdout.close()
    assert process.wait() == 0, "the attackers failed"
    return {name: Seen(**found) for name, found in json.loads(said).items()}


def main(words: Sequence[str]) -> None:
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    found = asyncio.run(Attackers(AttackOrder(**json.loads(sys.stdin.read()))).run())
    print(json.dumps({name: asdict(each) for name, each in found.items()}), flush=True)
    os._exit(0)  # what still waits has no more to say


if __name__ == "__main__":
    main(sys.argv[1:])
