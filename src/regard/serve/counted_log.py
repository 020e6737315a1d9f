"""Log lines that many clients can cause: one a second."""

from __future__ import annotations

import logging
import time
from collections import Counter


class CountedLog(logging.Filter):
    """Logs a line a second of each kind, with the number of times that it was noted.

    As a filter of another logger, it does the same to its warnings.
    """

    def __init__(self, log: logging.Logger) -> None:
        super().__init__()
        self._log = log
        self._counts = Counter[str]()
        self._last: dict[str, float] = {}

    def note(self, kind: str) -> None:
        """Count one of this kind: `"requests were refused for now"`."""
        self._counts[kind] += 1
        self._write(kind)

    def flush(self) -> None:
        """Write what was counted and not written yet, if a second is over."""
        for kind in list(self._counts):
            self._write(kind)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return True
        self.note(f"times: {record.getMessage()}")
        return False

    def _write(self, kind: str) -> None:
        if (now := time.monotonic()) >= self._last.get(kind, 0.0) + 1:
            self._log.info("%d %s", self._counts.pop(kind), kind)
            self._last[kind] = now
