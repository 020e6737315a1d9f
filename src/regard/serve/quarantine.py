"""Refuse requests that stopped the inference process.

A request is known by a digest of its operation, its model and its arguments, so that other requests of the same client are
answered. If several were computed when the process was killed, one of them is to blame and the others are not: such a request
is refused once it was there twice.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence

from regard.serve.api_error import ApiError

SECONDS = 600.0
"""Time for which a request is refused."""
MAX_REQUESTS = 10_000
"""Requests that are remembered."""
CHOSEN_BY_US = ("seed", "first")
"""Options that a route may draw anew for the same body."""


class Quarantine:
    """Requests that were computed when the process had to be killed."""

    def __init__(self) -> None:
        self._until: dict[bytes, float] = {}
        self._suspects: dict[bytes, float] = {}

    def blame(self, digests: Sequence[bytes]) -> list[bytes]:
        """Note what was computed at a kill; returns the requests that are refused from now on."""
        now, out = time.monotonic(), list[bytes]()
        self._forget(now)
        for digest in dict.fromkeys(digests):
            if len(set(digests)) == 1 or digest in self._suspects:
                self._until[digest] = now + SECONDS
                out.append(digest)
            self._suspects[digest] = now + SECONDS
        return out

    def check(self, op: str, model: str, arguments: Mapping[str, object]) -> None:
        """Refuse a request that has stopped the process."""
        if not self._until:
            return
        left = self._until.get(digest_request(op, model, arguments), 0.0) - time.monotonic()
        if left > 0:
            raise ApiError(
                422,
                "the models stopped answering when they last computed this request, and had to be started again; it is refused "
                f"for {left / 60:.0f} more minutes, other requests are answered",
                retry=int(left) + 1,
            )

    def _forget(self, now: float) -> None:
        for known in (self._until, self._suspects):
            for digest in [digest for digest, end in known.items() if end <= now]:
                del known[digest]
            while len(known) > MAX_REQUESTS:
                del known[next(iter(known))]


def digest_request(op: str, model: str, arguments: Mapping[str, object]) -> bytes:
    """Return the digest by which a request is known, whoever sends it."""
    options = arguments.get("options")
    if isinstance(options, Mapping):
        kept = {name: value for name, value in options.items() if name not in CHOSEN_BY_US}
        arguments = {**arguments, "options": kept}
    return hashlib.sha256(json.dumps([op, model, arguments], sort_keys=True).encode("utf-8", "replace")).digest()
