"""Who sends a request: decided here, and nowhere else.

A key comes in a header, as OpenAI's clients send it, or as `api_key` in the query or the body, as LibreTranslate's do. Headers
and query are looked at before a byte of the body is read; a key in the body is accepted on LibreTranslate's routes only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.types import Scope

from regard.serve.api_error import ApiError
from regard.serve.server_settings import ServerSettings

PUBLIC = ("/healthz", "/readyz", "/", "/favicon.ico")
STATIC = "/static/"
"""The page, which holds no secrets."""
KEY_IN_BODY = ("/translate", "/detect", "/languages", "/frontend/settings")
"""Routes of LibreTranslate."""
API_KEY = "api_key"
"""The field of a key in a query or a body."""
SECRETS, HIDDEN = ("apikey", "key", "authorization", "token"), "[hidden]"
"""Names of fields that are never logged, in small letters alone, and what is logged instead."""
_LETTERS = re.compile("[^a-z]")


def identify(settings: ServerSettings, scope: Scope) -> str | None:
    """Return the client of a request without reading its body; None if only the body can tell.

    Raises a 401 for any path but the public ones, whether it exists or not, if the server has keys and none of them came.
    """
    path = scope["path"]
    if not settings.keys or is_public(path):
        return find_address(scope)
    key = find_key(Headers(scope=scope))
    if key is not None:
        return _find_client(settings, key)
    if path not in KEY_IN_BODY:
        raise _missing()
    given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get(API_KEY)
    return None if given is None else settings.find_client(given[-1])


def identify_by_body(settings: ServerSettings, fields: dict[str, object]) -> str:
    """Return the client of a request that `identify` left open, by the fields of its body."""
    key = fields.get(API_KEY)
    return _find_client(settings, key if isinstance(key, str) else None)


def find_address(scope: Scope) -> str:
    """Return the address that a request came from: its client until a key says more."""
    address = scope.get("client")
    return str(address[0]) if address else "local"


def find_key(headers: Headers) -> str | None:
    """Return the key in the header of an OpenAI client."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" and key.strip() else None


def hide_keys(value: object, keys: Sequence[str]) -> Any:
    """Return what a client sent without keys: fields named so, at any depth, and the keys of the server wherever they are."""
    if isinstance(value, str):
        for key in keys:
            value = value.replace(key, HIDDEN)
        return value
    if isinstance(value, dict):
        return {
            hide_keys(name, keys): HIDDEN if _LETTERS.sub("", name.lower()) in SECRETS else hide_keys(inner, keys)
            for name, inner in value.items()
        }
    return [hide_keys(inner, keys) for inner in value] if isinstance(value, list) else value


def is_public(path: str) -> bool:
    return path in PUBLIC or (path.startswith(STATIC) and ".." not in path)


def _find_client(settings: ServerSettings, key: str | None) -> str:
    client = None if key is None else settings.find_client(key)
    if client is None:
        raise _missing()
    return client


def _missing() -> ApiError:
    return ApiError(401, "a valid API key is needed", code="invalid_api_key")
