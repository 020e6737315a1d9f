"""Admission: a bounded number of requests, refusals at once.

The queue is counted in the API process, which never computes: a refusal is quick, however busy the models are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from regard.serve.api_error import ApiError
from regard.serve.server_settings import Limits

RETRY = 1
"""Seconds after which a refused client may try again."""


class Admission:
    """Counts requests in flight, of all and of each client."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._clients: Counter[str] = Counter()
        self.is_draining = False
        self.refused = 0

    @property
    def count(self) -> int:
        return self._clients.total()

    @contextmanager
    def enter(self, client: str) -> Iterator[None]:
        """Admit a request for the time of the block, or refuse it."""
        if self.is_draining:
            raise self._refuse(503, "the server is shutting down")
        if self._clients[client] >= self._limits.client_requests:
            raise self._refuse(
                429, f"a client may have {self._limits.client_requests} requests at a time; wait for one"
            )
        if self.count >= self._limits.requests:
            raise self._refuse(503, "the server is busy; try again soon")
        self._clients[client] += 1
        try:
            yield
        finally:
            self._clients[client] -= 1
            if not self._clients[client]:
                del self._clients[client]

    def _refuse(self, status: int, message: str) -> ApiError:
        self.refused += 1
        return ApiError(status, message, retry=RETRY)
