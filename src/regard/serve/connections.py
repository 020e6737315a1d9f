"""Connections: how many there are, and how long they wait.

A client that sends nothing, half a header or half a body, or takes nothing of its answer, holds a file descriptor. There are at
most as many connections as leave descriptors for the server itself; beyond that, the one that keeps us waiting for the longest
time is closed for a new one. One address has at most its share of them, in the same way, so that it cannot take the places of
the others; not this machine's own, which may be that of a proxy. One that waits for more than its time is closed anyway.

    accepted ─▶ header ─▶ body ─▶ answer ─▶ kept alive ─▶ header …
    └────── waits for its client ──────┘    └── waits ──┘
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import ssl
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.errors import SpecError
from regard.serve.counted_log import CountedLog
from regard.serve.server_settings import Limits

OWN_FILES = 64
"""Descriptors for what the server itself opens: the inference process, runs, tables of languages."""
FILES_PER_CONNECTION = 2
"""Its socket, and a file of the page that it is sent."""
MAX_BACKLOG = 128
"""Connections that are accepted at a time, before any of them is counted."""
KEEP_ALIVE_SECONDS = 15
SWEEP_SECONDS = 0.5
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: 42\r\nRetry-After: 1\r\n"
    b'Connection: close\r\n\r\n{"error":"there are too many connections"}'
)
LOG = logging.getLogger("regard.serve")


class Connections:
    """All connections, and those among them that wait for their client, oldest first."""

    def __init__(self, limits: Limits, log: CountedLog, most: int | None = None) -> None:
        self._limits, self._log = limits, log
        self._most = limits.connections if most is None else most
        self._share = max(int(self._most * limits.address_share), 1)
        """Maximum number of connections of one address."""
        self._all: set[BoundedProtocol] = set()
        self._of: defaultdict[str, set[BoundedProtocol]] = defaultdict(set)
        """Connections by the address that they count for."""
        self._waiting: OrderedDict[BoundedProtocol, float] = OrderedDict()
        """Since when."""

    def choose_protocol(self, config: uvicorn.Config) -> Callable[..., asyncio.Protocol]:
        """Return what makes the protocol of a new connection; take TLS out of the configuration, since it begins here."""
        context, config.ssl = config.ssl, None
        if context is None:
            return partial(BoundedProtocol, self)

        def make(**given: Any) -> asyncio.Protocol:
            return TlsProtocol(BoundedProtocol(self, **given), self, context, self._limits.header_seconds)

        return make

    def add(self, one: BoundedProtocol) -> None:
        """Count a connection, and close another one for it if there are too many."""
        if one in self._all:  # its TLS has begun
            return
        one.address = name_address(one.transport.get_extra_info("peername"))
        own = self._of.get(one.address, ()) if one.address is not None else ()
        if len(own) >= self._share and not self._make_room(one, own, " of their address"):
            return
        if len(self._all) >= self._most and not self._make_room(one, self._all, ""):
            return
        self._all.add(one)
        if one.address is not None:
            self._of[one.address].add(one)
        self.update(one)

    def _make_room(self, one: BoundedProtocol, among: Collection[BoundedProtocol], which: str) -> bool:
        """Close the one among these that has waited for the longest time; if none waits, refuse the new one."""
        oldest = next((each for each in self._waiting if each in among), None)
        if oldest is None:
            self._log.note(f"connections were refused: all others{which} are being answered")
            one.transport.write(REFUSAL)
            one.transport.close()
            return False
        self._log.note(f"connections were closed for newer ones{which}, while they waited for their client")
        self._abort(oldest)
        return True

    def update(self, one: BoundedProtocol) -> None:
        """Note whether a connection waits for its client, after something happened."""
        if one not in self._all:
            return
        if not one.is_waiting:
            self._waiting.pop(one, None)
        elif one not in self._waiting:
            self._waiting[one] = one.loop.time()

    def remove(self, one: BoundedProtocol) -> None:
        self._all.discard(one)
        self._waiting.pop(one, None)
        if one.address is not None and one.address in self._of:
            self._of[one.address].discard(one)
            if not self._of[one.address]:
                del self._of[one.address]

    async def sweep(self) -> None:
        """Close those that waited for too long, for ever."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self.close_late(asyncio.get_running_loop().time())
            self._log.flush()

    def close_late(self, now: float) -> None:
        """Close those whose time is up: for a header, or to take some of an answer. Bodies have a limit where they are read."""
        for one, since in list(self._waiting.items()):
            spare = KEEP_ALIVE_SECONDS if one.has_answered else 0
            if not one.is_reading_body and now > since + spare + self._limits.header_seconds:
                self._log.note("connections were closed: no request came in time")
                self._abort(one)
        for one in list(self._all):
            if one.find_stall(now) > self._limits.stall_seconds:
                self._log.note("connections were closed: the client took nothing of its answer")
                self._abort(one)

    def _abort(self, one: BoundedProtocol) -> None:
        self.remove(one)
        one.transport.abort()  # not close: that would wait until the client has read what was written


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 on a connection that is counted."""

    def __init__(self, table: Connections, **given: Any) -> None:
        super().__init__(**given)
        self._table = table
        self.address: str | None = None
        """The address that it counts for, once it is counted."""
        self._left, self._since = 0, 0.0

    @property
    def is_waiting(self) -> bool:
        """True if it is the client's turn."""
        return self.cycle is None or self.cycle.response_complete or self.is_reading_body

    @property
    def is_reading_body(self) -> bool:
        return self.cycle is not None and self.cycle.more_body and not self.cycle.response_started

    @property
    def has_answered(self) -> bool:
        return self.cycle is not None

    def find_stall(self, now: float) -> float:
        """The seconds since the client took something of what was written to it; 0 if nothing is left."""
        left = self.transport.get_write_buffer_size()
        if not left or left < self._left or not self._left:
            self._since = now
        self._left = left
        return now - self._since

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._table.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._table.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._table.update(self)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._table.update(self)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP. uvicorn does not ask whether it is the body of a request that is being answered, or was."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # what is written from now on goes nowhere
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()


class TlsProtocol(asyncio.Protocol):
    """A connection until its TLS handshake is over; asyncio would not count it before."""

    def __init__(self, inner: BoundedProtocol, table: Connections, context: ssl.SSLContext, seconds: float) -> None:
        self._inner, self._table, self._context, self._seconds = inner, table, context, seconds
        self._early = bytearray()
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._inner.transport = transport
        self._table.add(self._inner)
        if not transport.is_closing():
            transport.pause_reading()
            self._task = self._inner.loop.create_task(self._start(transport))

    def data_received(self, data: bytes) -> None:
        self._early += data  # came with the end of the handshake

    def connection_lost(self, exc: Exception | None) -> None:
        self._table.remove(self._inner)

    async def _start(self, raw: asyncio.Transport) -> None:
        try:
            transport = await self._inner.loop.start_tls(
                raw, self, self._context, server_side=True, ssl_handshake_timeout=self._seconds
            )
        except OSError:  # an SSLError is one
            transport = None
        if transport is None or transport.is_closing():
            self._table.remove(self._inner)
            raw.abort()
            return
        transport.set_protocol(self._inner)
        self._inner.connection_made(transport)
        if self._early:
            self._inner.data_received(bytes(self._early))


def name_address(peer: object) -> str | None:
    """Name the address that a connection counts for; None for this machine, where a proxy may speak for everybody.

    Whoever has an IPv6 address has all 2⁶⁴ of its network: these are one.
    """
    try:
        address = ipaddress.ip_address(str(peer[0]).partition("%")[0] if isinstance(peer, tuple) else "")
    except ValueError:  # a socket without addresses
        return None
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    if address.is_loopback:
        return None
    return str(ipaddress.ip_network(f"{address}/64", strict=False)) if address.version == 6 else str(address)


def find_room(limits: Limits) -> tuple[int, int]:
    """The number of connections that there are descriptors for, and that are accepted at a time.

    More descriptors are asked of the system, if the limit needs them and it has them.
    """
    try:
        import resource
    except ImportError:  # Windows, whose sockets are no descriptors
        return limits.connections, MAX_BACKLOG
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_PER_CONNECTION * limits.connections + 2 * MAX_BACKLOG + OWN_FILES
    unlimited = resource.RLIM_INFINITY
    if soft != unlimited and soft < wanted:
        raised = wanted if hard == unlimited else min(wanted, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
        except (OSError, ValueError):
            pass  # it stays as it is
    backlog = MAX_BACKLOG if soft == unlimited else min(MAX_BACKLOG, soft // 8)
    room = limits.connections if soft == unlimited else (soft - 2 * backlog - OWN_FILES) // FILES_PER_CONNECTION
    if room < 1:
        raise SpecError(
            f"a server needs 96 or more open files, and this process may have {soft}; raise it with ulimit -n"
        )
    if room < limits.connections:
        LOG.warning(
            "at most %d connections instead of %d: this process may open %d files; raise it with ulimit -n",
            room, limits.connections, soft,
        )  # fmt: skip
    return min(room, limits.connections), backlog


def handle_loop_errors(log: CountedLog) -> Any:
    """A handler for errors of the event loop: without descriptors, a line a second and no traceback."""

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in EXHAUSTED:
            log.note(f"connections could not be accepted: {error.strerror}")
        else:
            loop.default_exception_handler(context)

    return handle
