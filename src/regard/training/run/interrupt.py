"""Ctrl-C, SIGTERM, SIGHUP: finish the step, then stop.

The first signal lets the current step finish; a second Ctrl-C stops at once. SIGHUP, which a closed terminal sends, is left
alone where somebody ignores it (`nohup`).
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

Handler = Callable[[int, FrameType | None], object] | int | None
"""Handler that `signal.signal` takes and returns."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class InterruptHandler:
    """`with InterruptHandler() as interrupt:`, then check `interrupt.signal` after each step: the signal received, or None."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, Handler] = {}

    def __enter__(self) -> InterruptHandler:
        if threading.current_thread() is threading.main_thread():  # other threads get no signals
            for number in SIGNALS:
                if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler or signal.SIG_DFL)  # None: the handler was not set from Python

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number
