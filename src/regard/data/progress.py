"""Progress messages of long work on data.

A listener gets a line every few seconds; work that is done sooner is silent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

EVERY = 10.0
"""Seconds between lines."""
STRIDE = 1 << 10
"""Number of items between two looks at the clock, if the total is unknown."""

T = TypeVar("T")
_LISTENER: ContextVar[Callable[[str], None] | None] = ContextVar("listens", default=None)


@contextmanager
def progress_to(say: Callable[[str], None]) -> Iterator[None]:
    """Within this context, progress goes to `say`."""
    token = _LISTENER.set(say)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def track(items: Iterable[T], what: str, *, done: int = 0, total: int | None = None) -> Iterator[T]:
    """Yield the items and report how many are done; with a total, also the remaining time."""
    say, start, began = _LISTENER.get(), done, time.monotonic()
    said = began
    for done, item in enumerate(items, start + 1):
        yield item
        if say is None or (total is None and done % STRIDE):
            continue
        now = time.monotonic()
        if now - said >= EVERY:
            said = now
            pace = (now - began) / (done - start)
            say(
                f"{what}: {done:,}"
                + ("" if total is None else f" of {total:,}, {_format_time(pace * (total - done))} left")
            )


def _format_time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
