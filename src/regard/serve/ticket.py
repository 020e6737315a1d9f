"""A request inside the inference process.

The thread that handles a request carries its ticket, so that whatever decodes for it knows for whom: to be fair between
clients, to stop when the client has left or time is up, and to count tokens.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

from regard.errors import RegardError
from regard.serve.vital_signs import COMPUTING, WAITING, RequestRow
from regard.stopping import Stop

CURRENT: ContextVar[Ticket | None] = ContextVar("ticket", default=None)


class RequestCancelled(RegardError):
    """The client has left, or the model was unloaded."""


class RequestLate(RequestCancelled):
    """Time is up."""


class ServerBusy(RegardError):
    """The request can be answered, but not now."""


@dataclasses.dataclass(eq=False)
class Ticket:
    """For whom something is decoded, and how much that was."""

    client: str = ""
    number: int = 0
    """Number of the request, from 1."""
    seconds: float | None = None
    """Time for the answer, from now on."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish: Literal["stop", "length"] = "stop"
    """Reason why the last output ended: its end mark, or its limit."""
    row: RequestRow | None = None
    """Row where others see what its thread does."""
    stop: Stop = dataclasses.field(default_factory=Stop)
    """Ends what engines compute for it."""
    _began: float = dataclasses.field(default_factory=time.monotonic)
    _cancelled: threading.Event = dataclasses.field(default_factory=threading.Event)
    _watchers: list[Callable[[], None]] = dataclasses.field(default_factory=list)

    @property
    def deadline(self) -> float | None:
        """Time when it is late, by the clock of `time.monotonic`."""
        return None if self.seconds is None else self._began + self.seconds

    @property
    def is_late(self) -> bool:
        return self.deadline is not None and time.monotonic() >= self.deadline

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Stop as soon as possible."""
        self._cancelled.set()
        self.stop.set()
        for tell in list(self._watchers):
            tell()

    def watch(self, tell: Callable[[], None]) -> None:
        """Call `tell` when the request is cancelled."""
        if tell not in self._watchers:
            self._watchers.append(tell)

    def unwatch(self, tell: Callable[[], None]) -> None:
        """Do not call `tell` any longer."""
        if tell in self._watchers:
            self._watchers.remove(tell)

    def check(self) -> None:
        """Raise an error if the request was cancelled, or is late."""
        if self.is_cancelled or self.is_late:
            raise self.explain()

    def explain(self) -> RequestCancelled:
        """Tell why the request has ended."""
        if self.is_late:
            return RequestLate(f"not done within {self.seconds:g} seconds; ask for less")
        return RequestCancelled("the request was cancelled")

    @contextmanager
    def wait(self) -> Iterator[None]:
        """Show that the thread of the request waits for another one, for the time of the block."""
        if self.row is None:
            yield
            return
        self.row.show(WAITING)
        try:
            yield
        finally:
            self.row.show(COMPUTING)

    @property
    def usage(self) -> dict[str, int]:
        total = self.prompt_tokens + self.completion_tokens
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": total,
        }
