"""Frames between the two processes: whole messages, and none that is too long."""

from __future__ import annotations

import socket
import struct

import pytest

from regard.serve.frames import MAX_FRAME, FrameSocket


def test_messages_arrive_whole_and_long_ones_are_refused() -> None:
    one, other = socket.socketpair()
    with one, other:
        FrameSocket(one).send({"text": "ü", "score": float("nan")})
        messages = iter(FrameSocket(other))
        assert next(messages) == {"text": "ü", "score": None}
        one.sendall(struct.pack(">I", MAX_FRAME + 1))
        with pytest.raises(
            ConnectionError, match=r"a frame of 268,435,457 bytes is too long; the limit is 268,435,456"
        ):
            next(messages)


def test_messages_end_where_the_other_end_was_killed() -> None:
    """It left before it had read what was sent: to the system, the connection was reset."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    FrameSocket(ours).send({"text": "not read"})
    theirs.close()
    assert list(FrameSocket(ours)) == []
    ours.close()
