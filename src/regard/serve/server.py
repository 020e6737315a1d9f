"""Run a server until it is told to stop.

SIGTERM and Ctrl-C drain it: no new request is admitted, those in flight are finished, then the inference process ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys

import uvicorn

from regard.errors import SpecError
from regard.serve.access_log import AccessLog
from regard.serve.app import build_app
from regard.serve.call import ServerContext
from regard.serve.connections import KEEP_ALIVE_SECONDS, Connections, find_room, handle_loop_errors
from regard.serve.counted_log import CountedLog
from regard.serve.server_settings import ServerSettings

MAX_HEADERS = 32 << 10
LOG = logging.getLogger("regard.serve")


def _keep_error(record: logging.LogRecord, errors: list[OSError]) -> bool:
    """Keep an error of the system that is logged; false for any other record."""
    if isinstance(record.msg, OSError):
        errors.append(record.msg)
        return True
    return False


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
        settings, refused = self._context.settings, list[OSError]()
        uvicorn_log, catch = logging.getLogger("uvicorn.error"), lambda record: not _keep_error(record, refused)
        uvicorn_log.addFilter(catch)
        try:
            await super().startup(sockets)  # type: ignore[arg-type]
        except SystemExit:  # it logs why it cannot listen, and ends the program with a code of its own
            if not refused:
                raise
            where = f"{settings.host}, port {settings.port}"
            raise SpecError(
                f"cannot listen on {where}: {os.strerror(refused[0].errno or 0)}; choose another --port"
            ) from None
        finally:
            uvicorn_log.removeFilter(catch)
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
        AccessLog(app, log, settings), host=settings.host, port=settings.port, http="h11", ws="none",
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
