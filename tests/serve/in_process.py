"""The API process inside of this one, before a real inference process: requests without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from regard.serve.app import build_app
from regard.serve.call import ServerContext
from regard.serve.server_settings import Limits, ServerSettings


@dataclass(frozen=True)
class FuzzRequest:
    """A request, as a server sees it."""

    method: str
    path: str
    headers: Mapping[str, bytes] = field(default_factory=dict)
    content: bytes = b""
    query: bytes = b""


@dataclass(frozen=True)
class LocalServer:
    """An application that has started."""

    app: FastAPI

    @property
    def context(self) -> ServerContext:
        context: ServerContext = self.app.state.server
        return context

    async def send(self, request: FuzzRequest) -> tuple[int, bytes]:
        """Status and body of the answer; raises whatever the application does not handle."""
        status, body, bodies = 0, bytearray(), [request.content]

        async def receive() -> dict[str, Any]:
            if bodies:
                return {"type": "http.request", "body": bodies.pop(), "more_body": False}
            await asyncio.Event().wait()  # the client stays
            raise AssertionError

        async def note(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)
            body.extend(message.get("body", b""))

        headers = {"host": b"localhost", **request.headers}
        scope = {
            "type": "http", "http_version": "1.1", "method": request.method, "scheme": "http", "path": request.path,
            "raw_path": request.path.encode("utf-8", "surrogatepass"), "query_string": request.query, "root_path": "",
            "headers": [(name.lower().encode("latin-1", "replace"), value) for name, value in headers.items()],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 5000),
        }  # fmt: skip
        await self.app(scope, receive, note)
        return status, bytes(body)


@asynccontextmanager
async def start_in_process(models: Mapping[str, Path], **limits: Any) -> AsyncIterator[LocalServer]:
    """An application with these models, until the end of the block."""
    settings = ServerSettings({name: str(path) for name, path in models.items()}, limits=Limits(**limits))
    app = build_app(settings)
    async with app.router.lifespan_context(app):
        server = LocalServer(app)
        await server.context.inference.wait_ready()
        assert server.context.inference.fault is None, server.context.inference.fault
        yield server
