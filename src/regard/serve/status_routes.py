"""Health, readiness, limits and metrics."""

from __future__ import annotations

import dataclasses

from starlette.responses import JSONResponse, Response

from regard.serve.call import Call, Route


async def check_health(call: Call, body: None) -> object:
    """Show that the API process answers."""
    return {"status": "ok"}


async def check_ready(call: Call, body: None) -> object:
    """Tell whether models answer, and new requests are admitted; if not, why."""
    server = call.server
    if server.admission.is_draining:
        reason: str | None = "the server is shutting down"
    else:
        reason = server.inference.find_trouble() if server.settings.models else None
    if reason is None:
        return JSONResponse({"ready": True})
    return JSONResponse({"ready": False, "reason": reason}, 503, headers={"Retry-After": "2"})


async def show_metrics(call: Call, body: None) -> object:
    server = call.server
    text = server.metrics.render(
        in_flight=server.admission.count, restarts=server.inference.restarts, ready=server.inference.is_ready,
        models=server.inference.stats,
    )  # fmt: skip
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


async def show_limits(call: Call, body: None) -> object:
    """Show the limits of one request."""
    return dataclasses.asdict(call.server.settings.limits)


ROUTES = [
    Route("GET", "/healthz", check_health, admits=False),
    Route("GET", "/readyz", check_ready, admits=False),
    Route("GET", "/limits", show_limits, admits=False),
    Route("GET", "/metrics", show_metrics, admits=False),
]
