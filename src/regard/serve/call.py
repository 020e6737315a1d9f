"""A request on its way through the API process.

gate ─▶ admission ─▶ body ─▶ key in it, if not before ─▶ handler ─▶ answer, or a stream of events
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from regard.serve.access_log import FIELDS
from regard.serve.admission import Admission
from regard.serve.api_error import ApiError, answer_error, invalid, shape_error
from regard.serve.authentication import API_KEY, find_address, identify_by_body
from regard.serve.inference_client import InferenceProcess
from regard.serve.request_body import parse_body, read_body, validate_body
from regard.serve.server_metrics import ServerMetrics
from regard.serve.server_settings import ServerSettings
from regard.spec import Plain


@dataclasses.dataclass(frozen=True)
class ServerContext:
    """Parts of the server that all requests share."""

    settings: ServerSettings
    inference: InferenceProcess
    admission: Admission
    metrics: ServerMetrics


@dataclasses.dataclass(frozen=True)
class Call:
    """One request, for its handler."""

    server: ServerContext
    request: Request
    client: str

    def list_models(self, use: str) -> list[Plain]:
        """The models for this use."""
        return [about for about in self.server.inference.models.values() if use in about["uses"]]

    def choose_model(self, name: str | None, use: str) -> str:
        """A model by name, or the first one for this use."""
        models = self.server.inference.models
        if not models and not self.server.inference.is_ready:
            raise ApiError(503, "the models are being loaded; try again soon", retry=2)
        fitting = [about["name"] for about in self.list_models(use)]
        if name is None:
            if not fitting:
                raise ApiError(404, f"no model here can do this ({use})", code="model_not_found")
            return str(fitting[0])
        if name not in models:
            known = ", ".join(models) or "none"
            raise ApiError(404, f"no model {name!r}; available: {known}", param="model", code="model_not_found")
        if name not in fitting:
            raise invalid(
                f"the model {name} cannot do this ({use}); it can: {', '.join(models[name]['uses'])}", "model"
            )
        return name

    def check_texts(self, texts: Sequence[str], name: str, *, beside: Sequence[str] = ()) -> None:
        """Refuse too many texts, or too long ones; what is sent `beside` them counts among their characters."""
        limits = self.server.settings.limits
        if len(texts) > limits.items:
            raise invalid(f"a request should have at most {limits.items} texts, got {len(texts)}", name)
        if (count := sum(map(len, texts)) + sum(map(len, beside))) > limits.characters:
            raise invalid(f"a request should have at most {limits.characters:,} characters, got {count:,}", name)

    async def infer(self, op: str, model: str, **arguments: object) -> Plain:
        """The result of an operation of the inference process."""
        return await self.server.inference.call(op, model, self.client, **arguments)

    def infer_in_pieces(self, op: str, model: str, **arguments: object) -> AsyncIterator[tuple[str, object]]:
        return self.server.inference.stream(op, model, self.client, **arguments)


@dataclasses.dataclass(frozen=True)
class EventStream:
    """An answer in server-sent events, ended by `last`."""

    events: AsyncIterator[object]
    last: str = "[DONE]"


Handler = Callable[[Call, Any], Awaitable[object]]


@dataclasses.dataclass(frozen=True)
class Route:
    """A path, what is sent to it, and who answers."""

    method: str
    path: str
    handle: Handler
    body: type[BaseModel] | None = None
    forms: bool = False
    files: bool = False
    admits: bool = True
    """True if it counts as a request in flight; False if it answers at once."""

    async def answer(self, server: ServerContext, request: Request) -> Response:
        """The response to a request."""
        began, path = time.perf_counter(), request.url.path
        try:
            response = await self._answer(server, request)
        except ApiError as error:
            response = answer_error(path, error)
        except TimeoutError:
            seconds = server.settings.limits.seconds
            response = answer_error(path, ApiError(504, f"no answer within {seconds:g} seconds; ask for less"))
        server.metrics.count(self.path, response.status_code, time.perf_counter() - began)
        return response

    async def _answer(self, server: ServerContext, request: Request) -> Response:
        limits, known = server.settings.limits, request.state.client
        with ExitStack() as stack:
            if self.admits:
                stack.enter_context(server.admission.enter(known or find_address(request.scope)))
            fields: dict[str, object] = {}
            if self.body is not None or known is None:
                data = await read_body(request, limits)
                fields = await parse_body(request, data, limits, forms=self.forms, files=self.files)
            if known is None:
                known = identify_by_body(server.settings, fields)
            fields.pop(API_KEY, None)
            setattr(request.state, FIELDS, fields)
            call = Call(server, request, known)
            body = None if self.body is None else validate_body(self.body, fields)
            async with asyncio.timeout(limits.seconds):
                found = await stop_on_disconnect(request, self.handle(call, body))
                if not isinstance(found, EventStream):
                    return found if isinstance(found, Response) else JSONResponse(found)
                first = await stop_on_disconnect(
                    request, anext(found.events)
                )  # an error before it is an error response
            return StreamingResponse(
                send_events(request.url.path, first, found, limits.seconds, stack.pop_all()),
                media_type="text/event-stream",
            )


async def stop_on_disconnect(request: Request, work: Awaitable[object]) -> Any:
    """The result of some work, which is cancelled when the client leaves."""
    task = asyncio.ensure_future(work)
    watcher = asyncio.ensure_future(wait_for_disconnect(request))
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ApiError(499, "the client closed the connection")
        return task.result()
    finally:
        for each in (task, watcher):
            if not each.done():
                each.cancel()
        await asyncio.gather(task, watcher, return_exceptions=True)


async def wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def send_events(
    path: str, first: object, stream: EventStream, seconds: float, stack: ExitStack
) -> AsyncIterator[bytes]:
    """Yield encoded events; on error, send it as the last event."""
    with stack:
        try:
            async with asyncio.timeout(seconds):
                yield pack_event(first)
                async for event in stream.events:
                    yield pack_event(event)
        except ApiError as error:
            yield pack_event(shape_error(path, error))
        except TimeoutError:
            yield pack_event(shape_error(path, ApiError(504, f"not done within {seconds:g} seconds")))
        finally:
            close = getattr(stream.events, "aclose", None)
            if close is not None:
                await close()
        yield f"data: {stream.last}\n\n".encode()


def pack_event(event: object) -> bytes:
    return f"data: {json.dumps(event, ensure_ascii=False, allow_nan=False)}\n\n".encode()
