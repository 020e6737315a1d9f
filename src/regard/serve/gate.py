"""The gate: what every request passes first.

The Host header must be an address, localhost or an allowed name, so that a page elsewhere cannot reach this machine through a
name of its own (DNS rebinding). A request that a browser makes for another site's page is refused. Without a key only the paths
in `PUBLIC` answer, if the server has keys: any other path is denied by default, whether it exists or not. A LibreTranslate
client has its key in the body, so its routes check it themselves (`call.py`).
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from regard.serve.api_error import ApiError, answer_error
from regard.serve.server_settings import ServerSettings

PUBLIC = ("/healthz", "/readyz", "/", "/favicon.ico")
STATIC = "/static/"
"""The page, which holds no secrets."""
KEY_IN_BODY = ("/translate", "/detect", "/languages", "/frontend/settings")
"""Routes of LibreTranslate."""
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
        address = scope.get("client")
        state = scope.setdefault("state", {})
        state["client"] = address[0] if address else "local"
        if not self.settings.keys or is_public(scope["path"]):
            return
        key = find_key(headers)
        client = None if key is None else self.settings.find_client(key)
        if client is not None:
            state["client"] = client
        elif key is None and scope["path"] in KEY_IN_BODY:
            state["client"] = None  # the route finds it in the body
        else:
            raise ApiError(401, "a valid API key is needed", code="invalid_api_key")


def is_public(path: str) -> bool:
    return path in PUBLIC or (path.startswith(STATIC) and ".." not in path)


def find_key(headers: Headers) -> str | None:
    """The key in the header of an OpenAI client."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" and key.strip() else None


@lru_cache(maxsize=1024)
def is_allowed_host(host: str, allowed: tuple[str, ...]) -> bool:
    """Whether a Host header is an address, localhost or an allowed name, with or without a port."""
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
