"""Ending a call early, from another thread.

    stop = regard.Stop()
    threading.Timer(5, stop.set).start()
    with stop:
        model.run(lines)      # raises regard.CallStopped after five seconds

A call looks at the stops of the `with` blocks around it, in its own thread: between two layers on the native engine, between
two tokens or two batches of texts on torch. Between two batches it also rests, if others share its time.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from contextvars import ContextVar

from regard.errors import CallStopped

_ACTIVE: ContextVar[tuple[Stop, ...]] = ContextVar("stops", default=())
_RESTS: ContextVar[tuple[Rests, ...]] = ContextVar("rests", default=())


class Stop:
    """Ends calls that are made in its `with` block once any thread calls `set`; a model that was stopped runs on as before.

    One stop may be used by several threads and for several calls. Once set it stays set: take a new one for what comes next.
    """

    def __init__(self) -> None:
        self.flag = array("i", [0])
        """1 once it is set. The native library reads it in place."""

    def set(self) -> None:
        """End the calls, also those that are made later."""
        self.flag[0] = 1

    @property
    def is_set(self) -> bool:
        return self.flag[0] != 0

    def __enter__(self) -> Stop:
        _ACTIVE.set((*_ACTIVE.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        stops = [*_ACTIVE.get()]
        stops.remove(self)
        _ACTIVE.set((*stops,))


def list_stops() -> tuple[Stop, ...]:
    """Return the stops that this thread's calls look at, to pass them to threads that work for it."""
    return _ACTIVE.get()


def check_stops(stops: Sequence[Stop] | None = None) -> None:
    """Raise `CallStopped` if one of the stops is set; by default one of this thread's."""
    for stop in _ACTIVE.get() if stops is None else stops:
        if stop.is_set:
            raise CallStopped("the call was stopped")


class Rests:
    """A block in which calls of this thread call `wait` between two batches, where they hold little memory."""

    def __init__(self, wait: Callable[[], None]) -> None:
        self.wait = wait

    def __enter__(self) -> Rests:
        _RESTS.set((*_RESTS.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        _RESTS.set(_RESTS.get()[:-1])


def rest() -> None:
    """Let others have their turn, then raise `CallStopped` if one of this thread's stops is set."""
    for each in _RESTS.get():
        each.wait()
    check_stops()
