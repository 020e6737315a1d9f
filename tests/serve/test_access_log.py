"""The log of requests: texts only if asked, keys never."""

from __future__ import annotations

import asyncio
import json
import logging
from functools import cache
from urllib.parse import urlencode

import pytest

from regard.serve.access_log import AccessLog
from regard.serve.app import ROUTES, build_app
from regard.serve.counted_log import CountedLog
from regard.serve.server_settings import ServerSettings
from tests.serve.in_process import FuzzRequest, LocalServer

OURS, OTHER = "Qk7ZmW2xP9rT4vBn", "J8sLd3HfYc6Gx5Ue"
"""The key of the server, and one that is of another: letters and digits that no line of a log has otherwise."""
JSON = {"content-type": b"application/json"}
FORM = {"content-type": b"application/x-www-form-urlencoded"}
PARTS = {"content-type": b"multipart/form-data; boundary=x"}


@cache
def build_logged(keys: tuple[str, ...]) -> AccessLog:
    settings = ServerSettings({"a": "nowhere"}, keys=keys, log_texts=True)
    return AccessLog(build_app(settings), CountedLog(logging.getLogger("regard.serve")), settings)


def log_of(caplog: pytest.LogCaptureFixture, request: FuzzRequest, keys: tuple[str, ...] = (OURS,)) -> str:
    """What is logged for a request with `--log-texts`."""
    caplog.clear()
    with caplog.at_level(logging.INFO, "regard.serve"):
        asyncio.run(LocalServer(build_logged(keys)).send(request))  # type: ignore[arg-type]
    return caplog.text


def requests_with(key: str, method: str, path: str) -> list[FuzzRequest]:
    """Requests that have a key wherever a client may have put it."""
    bodies = [
        {"api_key": key, "q": "a"}, {"q": "a", "options": {"api_key": key}}, {"x": [{"Api-Key": [key, {"a": key}]}]},
        {"Authorization": f"Bearer {key}"}, {"api_key": {"api_key": key}}, {"token": key},
    ]  # fmt: skip
    part = f'--x\r\nContent-Disposition: form-data; name="api_key"\r\n\r\n{key}\r\n'
    contents = [
        *((JSON, json.dumps(body).encode()) for body in bodies),
        (JSON, f'{{"api\\u005fkey": "{key}", "q": "a", "api_key": "{key}"}}'.encode()),
        (JSON, f'{{"q": "a" "api_key": "{key}"}}'.encode()),  # not JSON
        (JSON, b'{"q": "' + b"a" * 1990 + b'", "api_key": "' + key.encode() + b'"}'),
        (JSON, json.dumps({"q": "a" * 1985, "x": {"api_key": key}}).encode()),
        (FORM, urlencode([("api_key", key), ("q", "a"), ("api_key", key)]).encode()),
        (PARTS, f"{part}{part}--x--".encode()),
        (PARTS, part.encode()),
    ]
    out = [FuzzRequest(method, path, headers, content) for headers, content in contents]
    out.append(FuzzRequest(method, path, JSON, b'{"q": "a"}', urlencode({"api_key": key}).encode()))
    return [*out, FuzzRequest(method, path, JSON | {"Authorization": b"Bearer " + key.encode()}, b'{"q": "a"}')]


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_no_part_of_a_key_is_logged(route, caplog: pytest.LogCaptureFixture) -> None:  # type: ignore[no-untyped-def]
    path = route.path.replace("{name}", "a")
    for keys, key in (((OURS,), OURS), ((OURS,), OTHER), ((), OTHER)):
        for request in requests_with(key, route.method, path):
            log = log_of(caplog, request, keys)
            assert not [i for i in range(len(key) - 3) if key[i : i + 4] in log], (request, log)


def test_a_key_of_the_server_is_hidden_in_texts_and_paths(caplog: pytest.LogCaptureFixture) -> None:
    headers = JSON | {"authorization": b"Bearer " + OURS.encode()}
    log = log_of(caplog, FuzzRequest("POST", "/translate", headers, json.dumps({"q": f"my key is {OURS}"}).encode()))
    assert "POST /translate 400" in log and '{"q": "my key is [hidden]"}' in log
    assert "GET /models/[hidden]/x 404" in log_of(caplog, FuzzRequest("GET", f"/models/{OURS}/x", headers))


def test_texts_are_on_one_line_and_short(caplog: pytest.LogCaptureFixture) -> None:
    log = log_of(
        caplog, FuzzRequest("POST", "/translate", JSON, json.dumps({"q": "a\n\u202eb" + "c" * 5000}).encode()), ()
    )
    assert log.count("\n") == 1 and len(log) < 2200 and "\\u202eb" in log
