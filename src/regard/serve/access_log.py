"""The log of requests: what was asked, never with a key.

A line has method, path, status and time; with `--log-texts` also the fields of the body, once it is parsed: one that cannot be
parsed may have a key anywhere. Queries and headers are not logged.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.serve.authentication import hide_keys
from regard.serve.counted_log import CountedLog
from regard.serve.server_settings import ServerSettings

REFUSALS = (429, 503)
MAX_PATH, MAX_TEXTS = 200, 2000
"""Characters in a line of the log."""
FIELDS = "fields"
"""The state of a request that has the fields of its body."""
LOG = logging.getLogger("regard.serve")


class AccessLog:
    """ASGI middleware that logs a line per request.

    Refusals have a line per second, so that they stay quick however many there are.
    """

    def __init__(self, app: ASGIApp, log: CountedLog, settings: ServerSettings) -> None:
        self.app, self._log, self._settings = app, log, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def note(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        await self.app(scope, receive, note)
        if status in REFUSALS:
            self._log.note("requests were refused for now")
            return
        taken = 1000 * (time.perf_counter() - began)
        path = escape(hide_keys(scope["path"], self._settings.keys))[:MAX_PATH]
        fields = scope.get("state", {}).get(FIELDS) if self._settings.log_texts else None
        texts = f" {write_texts(fields, self._settings.keys)}" if fields else ""
        LOG.info("%s %s %d %.0f ms%s", scope["method"], path, status, taken, texts)


def write_texts(fields: object, keys: Sequence[str]) -> str:
    """The fields of a body on one line."""
    return escape(json.dumps(hide_keys(fields, keys), ensure_ascii=False))[:MAX_TEXTS]


def escape(text: str) -> str:
    return text.encode("unicode_escape").decode()
