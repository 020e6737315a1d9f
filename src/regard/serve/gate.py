"""The gate: what every request passes first.

The Host header must be an address, localhost or an allowed name, so that a page elsewhere cannot reach this machine through a
name of its own (DNS rebinding). A request that a browser makes for another site's page is refused. Then its client is found,
or it is refused (`authentication.py`).
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from regard.serve.api_error import ApiError, answer_error
from regard.serve.authentication import PUBLIC, identify
from regard.serve.server_settings import ServerSettings

SECURITY_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
]


class Gate:
    """ASGI middleware that lets a request through, or answers it."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self.app, self.settings, self._allowed_hosts = app, settings, tuple(settings.allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        async def send_safely(message: dict[str, object]) -> None:
            if message["type"] == "http.response.start":
                given = message.setdefault("headers", [])
                assert isinstance(given, list)
                present = {name.lower() for name, _ in given}
                given += [pair for pair in SECURITY_HEADERS if pair[0] not in present]
            await send(message)

        try:
            self.check(scope)
        except ApiError as error:
            await answer_error(scope["path"], error)(scope, receive, send_safely)  # type: ignore[arg-type]
            return
        await self.app(scope, receive, send_safely)  # type: ignore[arg-type]

    def check(self, scope: Scope) -> None:
        """Raise an error for a request that may not pass; note the client of one that may."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not is_allowed_host(hosts[0], self._allowed_hosts):
            raise ApiError(421, "this server does not answer for that host; allow a name with --allow-host")
        origin = headers.get("origin")
        if origin is not None and urlsplit_host(origin) != hosts[0].lower():
            raise ApiError(403, "requests of pages from other sites are refused")
        if headers.get("sec-fetch-site", "same-origin") == "cross-site" and scope["path"] not in PUBLIC:
            raise ApiError(403, "requests of pages from other sites are refused")
        scope.setdefault("state", {})["client"] = identify(self.settings, scope)


@lru_cache(maxsize=1024)
def is_allowed_host(host: str, allowed: tuple[str, ...]) -> bool:
    """True if a Host header is an address, localhost or an allowed name, with or without a port."""
    name = host.lower()
    name, _, port = name.rpartition(":") if not name.endswith("]") and ":" in name else (name, "", "")
    if port and not port.isdigit():
        return False
    if name in ("localhost", *(each.lower() for each in allowed)):
        return True
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def urlsplit_host(origin: str) -> str | None:
    """Host and port of an origin."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None
