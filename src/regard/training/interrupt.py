"""Stopping when asked: the first Ctrl-C or SIGTERM lets the step in hand finish, a second Ctrl-C stops at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class InterruptHandler:
    """`with Stop() as stop:` then look at `stop.asked` after each step; it holds the signal's number."""

    def __init__(self) -> None:
        self.asked: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> InterruptHandler:
        if threading.current_thread() is threading.main_thread():  # in other threads signals are not ours
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler or signal.SIG_DFL)  # None: a handler that was not set from Python

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.asked is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked = number
