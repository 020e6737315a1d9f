"""Health, readiness and metrics."""

from __future__ import annotations

from starlette.responses import JSONResponse, Response

from regard.serve.call import Call, Route


async def check_health(call: Call, body: None) -> object:
    """Whether the API process answers."""
    return {"status": "ok"}


async def check_ready(call: Call, body: None) -> object:
    """Whether models answer, and new requests are admitted."""
    server = call.server
    ready = not server.admission.is_draining and (server.inference.is_ready or not server.settings.models)
    return JSONResponse({"ready": ready}, 200 if ready else 503, headers={} if ready else {"Retry-After": "2"})


async def show_metrics(call: Call, body: None) -> object:
    server = call.server
    text = server.metrics.render(
        in_flight=server.admission.count, restarts=server.inference.restarts, ready=server.inference.is_ready,
        models=server.inference.stats,
    )  # fmt: skip
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


ROUTES = [
    Route("GET", "/healthz", check_health, admits=False),
    Route("GET", "/readyz", check_ready, admits=False),
    Route("GET", "/metrics", show_metrics, admits=False),
]
