"""Attacks of clients on a server, and the table of all: what a visit is, and what it is made from.

An attack makes visits. A visit is one connection: pieces of bytes with pauses between them, and an end. Nothing here opens a
connection (`attackers.py` does), and nothing here needs the package, so that attackers start quickly. `attack_connections.py`
and `attack_bodies.py` fill the table.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class End(StrEnum):
    """How a visit ends."""

    READ = "read"
    """Read the answer to its end."""
    HALF = "close its half, then read"
    HOLD = "hold"
    """Wait until the server closes the connection."""
    LEAVE = "leave"
    RESET = "reset"
    """Leave without the usual farewell."""


@dataclass(frozen=True)
class Target:
    """A route, and bodies that are right."""

    method: str
    path: str
    bodies: Sequence[Mapping[str, Any]] = ()
    forms: bool = False


@dataclass(frozen=True)
class Visit:
    """What one connection sends, and how it ends."""

    path: str
    pieces: Sequence[bytes]
    end: End = End.READ
    pause: float = 0.0
    """Seconds between two pieces."""
    due: bool = True
    """It is whole and can be told to be so, thus an answer is owed."""
    stay: float = 0.0
    """Seconds to stay before leaving."""


@dataclass(frozen=True)
class Attacker:
    """What an attack draws from: chance, the routes and keys."""

    draw: random.Random
    targets: Sequence[Target]
    keys: Sequence[str]
    """The attacker's own key, if the server has keys."""
    prepared: Sequence[tuple[str, bytes]] = ()
    """Paths and whole requests that were changed at random."""

    def choose(self) -> Target:
        return self.draw.choice(self.targets)

    def choose_with_body(self) -> tuple[Target, dict[str, Any]]:
        target = self.draw.choice([each for each in self.targets if each.bodies])
        return target, dict(self.draw.choice(list(target.bodies)))

    def choose_key(self) -> list[str]:
        """A header with the attacker's own key; sometimes none, or a wrong one."""
        key = self.draw.choice([*self.keys, *self.keys, *self.keys, "", "wrong-but-quite-long-enough"])
        return [f"Authorization: Bearer {key}"] if key else []

    def write(
        self, target: Target, body: bytes = b"", headers: Sequence[str] = (), *, length: int | str | None = None,
        last: bool = True, kind: str = "application/json", keyed: bool = True,
    ) -> bytes:  # fmt: skip
        """A request with this body, and the headers that it needs."""
        lines = [f"{target.method} {target.path} HTTP/1.1", "Host: localhost", *headers]
        lines += self.choose_key() if keyed else []
        if body or length is not None or target.bodies:
            lines += [f"Content-Type: {kind}", f"Content-Length: {len(body) if length is None else length}"]
        lines += ["Connection: close"] if last else []
        return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape") + body


@dataclass(frozen=True)
class Attack:
    """A kind of visits, and how many there are at once."""

    make: Callable[[Attacker], Visit]
    connections: int


ATTACKS: dict[str, Attack] = {}
"""All attacks by name."""


def add(name: str, connections: int = 8) -> Callable[[Callable[[Attacker], Visit]], Callable[[Attacker], Visit]]:
    """Enter an attack into the table."""

    def enter(make: Callable[[Attacker], Visit]) -> Callable[[Attacker], Visit]:
        ATTACKS[name] = Attack(make, connections)
        return make

    return enter
