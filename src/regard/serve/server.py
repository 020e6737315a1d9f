"""Run a server until it is told to stop.

SIGTERM and Ctrl-C drain it: no new request is admitted, those in flight are finished, then the inference process ends.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.errors import SpecError
from regard.serve.app import build_app
from regard.serve.call import ServerContext
from regard.serve.connections import KEEP_ALIVE_SECONDS, Connections, find_room, handle_loop_errors
from regard.serve.counted_log import CountedLog
from regard.serve.server_settings import ServerSettings

MAX_HEADERS = 32 << 10
REFUSALS = (429, 503)
LOG = logging.getLogger("regard.serve")


class DrainingServer(uvicorn.Server):
    """A server that refuses new requests before it stops."""

    def __init__(
        self, config: uvicorn.Config, context: ServerContext, log: CountedLog, connections: Connections
    ) -> None:
        super().__init__(config)
        self._context, self._log, self._connections = context, log, connections
        self._sweeper: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        """Listen when the models are loaded, or say why they are not."""
        asyncio.get_running_loop().set_exception_handler(handle_loop_errors(self._log))
        self._sweeper = asyncio.create_task(self._connections.sweep())
        await super().startup(sockets)  # type: ignore[arg-type]
        settings, inference = self._context.settings, self._context.inference
        if not self.started:
            return
        while settings.models and not (inference.is_ready or inference.fault or self.should_exit):
            await asyncio.sleep(0.02)
        if inference.fault or self.should_exit:
            self.should_exit = True
            return
        scheme = "http" if settings.tls_certificate is None else "https"
        port = self.servers[0].sockets[0].getsockname()[1]
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        print(f"regard: serving {', '.join(settings.models) or 'runs'} on {scheme}://{host}:{port}", file=sys.stderr)

    async def shutdown(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        self._context.admission.is_draining = True
        await super().shutdown(sockets)  # type: ignore[arg-type]


class AccessLog:
    """ASGI middleware that logs a line per request: method, path, status, time; texts only if asked.

    Refusals have a line per second, so that they stay quick however many there are.
    """

    def __init__(self, app: ASGIApp, log: CountedLog, *, texts: bool = False) -> None:
        self.app, self.texts, self._log = app, texts, log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, sent = time.perf_counter(), 0, bytearray()

        async def note(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        async def read() -> Message:
            message = await receive()
            if self.texts:
                sent.extend(message.get("body", b"")[: 2000 - len(sent)])
            return message

        await self.app(scope, read, note)
        if status in REFUSALS:
            self._log.note("requests were refused for now")
            return
        taken = 1000 * (time.perf_counter() - began)
        path = scope["path"][:200].encode("unicode_escape").decode()
        more = f" {bytes(sent)!r}" if self.texts and sent else ""
        LOG.info("%s %s %d %.0f ms%s", scope["method"], path, status, taken, more)


def run_server(settings: ServerSettings) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="regard: %(message)s")
    LOG.setLevel(logging.INFO)
    app = build_app(settings)
    context: ServerContext = app.state.server
    log = CountedLog(LOG)
    logging.getLogger("uvicorn.error").addFilter(log)
    most, backlog = find_room(settings.limits)
    connections = Connections(settings.limits, log, most)
    config = uvicorn.Config(
        AccessLog(app, log, texts=settings.log_texts), host=settings.host, port=settings.port, http="h11", ws="none",
        backlog=backlog, lifespan="on", log_config=None, access_log=False, server_header=False, proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS, timeout_graceful_shutdown=int(settings.limits.seconds) + 1,
        h11_max_incomplete_event_size=MAX_HEADERS, ssl_certfile=settings.tls_certificate, ssl_keyfile=settings.tls_key,
    )  # fmt: skip
    try:
        config.load()
    except OSError as error:  # an SSLError is one
        raise SpecError(f"the TLS certificate or key cannot be used: {error}") from None
    config.http_protocol_class = connections.choose_protocol(config)  # type: ignore[assignment]
    server = DrainingServer(config, context, log, connections)
    asyncio.run(server.serve())
    if context.inference.fault is not None:
        raise SpecError(context.inference.fault)
