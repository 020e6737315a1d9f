"""Messages between the two processes: JSON in frames.

A frame is its length in four bytes and a JSON object. Both ends are ours, but what is inside came from a client: nothing is
executed, and a frame that is too long is refused.
"""

from __future__ import annotations

import asyncio
import json
import math
import socket
import struct
import threading
from collections.abc import Iterator

from regard.errors import DataError
from regard.spec import Plain

MAX_FRAME = 1 << 28
_LENGTH = struct.Struct(">I")


def pack_frame(message: Plain) -> bytes:
    """A message as bytes; numbers that JSON lacks become null."""
    try:
        data = json.dumps(message, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        data = json.dumps(_finite(message), ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
    if len(data) > MAX_FRAME:
        raise DataError(f"a message of {len(data):,} bytes is too long; the limit is {MAX_FRAME:,}")
    return _LENGTH.pack(len(data)) + data


async def read_frame(reader: asyncio.StreamReader) -> Plain:
    """The next message; an IncompleteReadError at the end."""
    length = _read_length(await reader.readexactly(_LENGTH.size))
    message: Plain = json.loads(await reader.readexactly(length))
    return message


def _read_length(head: bytes) -> int:
    """The number of bytes that follow; a ConnectionError if they are too many."""
    (length,) = _LENGTH.unpack(head)
    if length > MAX_FRAME:
        raise ConnectionError(f"a frame of {length:,} bytes is too long; the limit is {MAX_FRAME:,}")
    return int(length)


class FrameSocket:
    """A socket whose messages are read by one thread and sent by many."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket, self._lock = sock, threading.Lock()

    def send(self, message: Plain) -> None:
        data = pack_frame(message)
        with self._lock:
            self._socket.sendall(data)

    def __iter__(self) -> Iterator[Plain]:
        """All messages until the other end closes."""
        while True:
            head = self._receive(_LENGTH.size)
            if head is None:
                return
            body = self._receive(_read_length(head))
            if body is None:
                return
            yield json.loads(body)

    def _receive(self, count: int) -> bytes | None:
        parts = []
        while count:
            try:
                part = self._socket.recv(min(count, 1 << 20))
            except ConnectionResetError:  # the other end was killed before it had read everything
                return None
            if not part:
                return None
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value
