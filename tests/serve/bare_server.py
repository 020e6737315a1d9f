"""The smallest server: it reads what it is sent and answers at once.

`python -m tests.serve.bare_server` listens on a free port. What it does under an attack is what the machine, Python and
uvicorn do.
"""

from __future__ import annotations

import asyncio
import sys

import uvicorn
from starlette.types import Receive, Scope, Send


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        return
    more = True
    while more:
        message = await receive()
        more = message.get("more_body", False)
    body = b'{"status":"ok"}'
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def serve() -> None:
    config = uvicorn.Config(
        answer, port=0, http="h11", ws="none", lifespan="off", log_level="critical", access_log=False
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    print(f"bare server on http://127.0.0.1:{port}", file=sys.stderr, flush=True)
    await task


if __name__ == "__main__":
    asyncio.run(serve())
