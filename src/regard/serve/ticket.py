"""A request inside the inference process.

The thread that handles a request carries its ticket, so that whatever decodes for it knows for whom: to be fair between
clients, to stop when the client has left, and to count tokens.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Literal

from regard.errors import RegardError

CURRENT: ContextVar[Ticket | None] = ContextVar("ticket", default=None)


class RequestCancelled(RegardError):
    """The client has left, or time is up."""


class ServerBusy(RegardError):
    """The request can be answered, but not now."""


@dataclasses.dataclass(eq=False)
class Ticket:
    """For whom something is decoded, and how much that was."""

    client: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish: Literal["stop", "length"] = "stop"
    """Why the last output ended: by its end mark, or by its limit."""
    _cancelled: threading.Event = dataclasses.field(default_factory=threading.Event)
    _watchers: list[Callable[[], None]] = dataclasses.field(default_factory=list)

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Stop as soon as possible."""
        self._cancelled.set()
        for tell in list(self._watchers):
            tell()

    def watch(self, tell: Callable[[], None]) -> None:
        """Call `tell` when the request is cancelled."""
        if tell not in self._watchers:
            self._watchers.append(tell)

    def check(self) -> None:
        """Raise an error if the request was cancelled."""
        if self.is_cancelled:
            raise RequestCancelled("the request was cancelled")

    @property
    def usage(self) -> dict[str, int]:
        total = self.prompt_tokens + self.completion_tokens
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": total,
        }
