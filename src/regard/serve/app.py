"""The web application: routes, gate, page, description."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from regard import __version__
from regard.serve import libretranslate_routes, openai_routes, own_routes, run_routes, status_routes
from regard.serve.admission import Admission
from regard.serve.api_error import ApiError, answer_error
from regard.serve.authentication import STATIC
from regard.serve.call import Route, ServerContext
from regard.serve.gate import Gate
from regard.serve.inference_client import InferenceProcess
from regard.serve.server_metrics import ServerMetrics
from regard.serve.server_settings import ServerSettings

ROUTES: list[Route] = [
    *status_routes.ROUTES,
    *libretranslate_routes.ROUTES,
    *openai_routes.ROUTES,
    *own_routes.ROUTES,
    *run_routes.ROUTES,
]
"""All routes but those of the page."""
REFERENCE = "#/components/schemas/{model}"
PAGE = Path(__file__).parent / "static"
"""The page as it was built."""


def build_app(settings: ServerSettings) -> FastAPI:
    """The application of a server."""
    inference = InferenceProcess(settings.for_inference(), settings.limits)
    server = ServerContext(settings, inference, Admission(settings.limits), ServerMetrics())

    @asynccontextmanager
    async def live(app: FastAPI) -> AsyncIterator[None]:
        if settings.models:
            await inference.start()
        yield
        await inference.stop()

    app = FastAPI(title="Regard", version=__version__, lifespan=live, docs_url=None, redoc_url=None)
    app.state.server = server
    for route in ROUTES:
        app.add_route(route.path, _make_endpoint(route, server), methods=[route.method], include_in_schema=False)
    app.openapi = partial(_describe, app)  # type: ignore[method-assign]
    app.add_route("/", _show_page, methods=["GET"], include_in_schema=False)
    if PAGE.is_dir():
        app.mount(STATIC.rstrip("/"), StaticFiles(directory=PAGE))
    app.add_exception_handler(HTTPException, _answer_http_error)
    app.add_exception_handler(Exception, _answer_bug)
    app.add_middleware(ShortWay, server=server)
    app.add_middleware(Gate, settings=settings)
    return app


class ShortWay:
    """ASGI middleware that finds routes without a name in their path at once, not by trying one after another."""

    def __init__(self, app: ASGIApp, server: ServerContext) -> None:
        self.app, self._server = app, server
        self._routes = {(route.method, route.path): route for route in ROUTES if "{" not in route.path}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._routes.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if route is None:
            await self.app(scope, receive, send)
            return
        response = await route.answer(self._server, Request(scope, receive))
        await response(scope, receive, send)


def _make_endpoint(route: Route, server: ServerContext) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        return await route.answer(server, request)

    return endpoint


def _summarize(route: Route) -> str:
    words = (route.handle.__doc__ or route.handle.__name__.replace("_", " ")).strip()
    return words.partition("\n")[0].rstrip(".").capitalize()


def _describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI description, with the parts that bodies refer to."""
    if app.openapi_schema is None:
        described = [_describe_route(route) for route in ROUTES]
        app.openapi_schema = get_openapi(title=app.title, version=app.version, routes=described)
        parts = app.openapi_schema.setdefault("components", {}).setdefault("schemas", {})
        for route in ROUTES:
            if route.body is not None:
                parts |= route.body.model_json_schema(ref_template=REFERENCE).get("$defs", {})
    return app.openapi_schema


def _describe_route(route: Route) -> APIRoute:
    """A route as FastAPI describes it. FastAPI does not run it: its own reading of bodies took half of a request's time."""

    async def endpoint(request: Request) -> None: ...

    return APIRoute(
        route.path, endpoint, methods=[route.method], name=route.handle.__name__, response_model=None,
        summary=_summarize(route), openapi_extra=_describe_body(route),
    )  # fmt: skip


def _describe_body(route: Route) -> dict[str, object] | None:
    """The schema of a body, for OpenAPI: bodies are read by us and not by FastAPI."""
    if route.body is None:
        return None
    schema = route.body.model_json_schema(ref_template=REFERENCE)
    schema.pop("$defs", None)
    kinds = ["application/json"]
    kinds += ["application/x-www-form-urlencoded", "multipart/form-data"] if route.forms else []
    kinds += ["multipart/form-data", "image/*"] if route.files else []
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}}


async def _show_page(request: Request) -> Response:
    index = PAGE / "index.html"
    if index.is_file():
        return FileResponse(index)
    return PlainTextResponse("regard serve: see /openapi.json for what can be asked here\n")


async def _answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = {404: f"there is nothing at {request.url.path}", 405: f"{request.method} is not allowed here"}
    status = error.status_code
    return answer_error(request.url.path, ApiError(status, words.get(status, str(error.detail))))


async def _answer_bug(request: Request, error: Exception) -> Response:
    return answer_error(request.url.path, ApiError(500, "the server failed on this request; its log says where"))
