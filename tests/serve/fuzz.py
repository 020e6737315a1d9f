"""Requests of all kinds to a server: any answer but a planned one is a bug.

    python -m tests.serve.fuzz 1000000

Bodies that are right are changed at random: fields dropped, renamed, replaced by values of any type, texts by hostile ones,
bytes flipped, headers and methods exchanged. Others are made by schemathesis from the OpenAPI description, as it allows and as
it does not. Most go straight to the application, in this process, which passes them on to a real inference process; some
through HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import httpx
import hypothesis
import requests
import schemathesis

from regard.serve.app import ROUTES, build_app
from regard.serve.server_settings import ServerSettings
from tests.serve.in_process import FuzzRequest, LocalServer, start_in_process
from tests.serve.running import make_models, start_server

PLANNED = {200, 400, 401, 403, 404, 405, 408, 413, 421, 429, 501}
"""Statuses of requests that are one at a time: nothing is busy, and nothing takes long."""
CLIENTS = 16
"""Requests that are under way at the same time."""
BATCH = 20_000
"""Requests with the same seed."""
WITH_BODY = [route for route in ROUTES if route.body is not None]
METHODS = ["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"]
KINDS = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "image/png", "\u00ff"]
TEXTS = [
    "", " ", "abc", "\x00", "\u202e", "\ufeffa", "a" * 5000, "😀" * 50, "\ud800", "<p>a</p>", "../../etc/passwd", "%00",
    "{{7*7}}", "\n\n\r\n", "\U0010ffff", "ａ", "a\u0301" * 40, "<mask>", "<s></s><unk><2de>", "0" * 400,
]  # fmt: skip
VALUES: list[object] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**30, 0.5, -1e308, 1e-320, [], {}, [[]], [None], {"a": {"b": []}},
    "1", "true",
]  # fmt: skip
GOOD: dict[str, list[dict[str, object]]] = {
    "/translate": [{"q": "abc", "source": "auto", "target": "target", "format": "text", "alternatives": 1}],
    "/detect": [{"q": "abc"}],
    "/v1/completions": [
        {"model": "lm", "prompt": "the", "max_tokens": 3, "temperature": 0.5, "n": 1, "stop": "a", "seed": 1, "echo": True},
        {"model": "translate", "prompt": ["ab"], "max_tokens": 3, "stream": True, "stream_options": {"include_usage": True}},
    ],
    "/v1/chat/completions": [{"model": "lm", "messages": [{"role": "user", "content": "a"}], "max_tokens": 3}],
    "/v1/embeddings": [{"model": "embed", "input": ["a", "b"], "encoding_format": "float"}],
    "/run": [
        {"model": "translate", "inputs": ["ab"], "prefix": "a", "options": {"beam": 2, "n_best": 1, "max_length": 5}},
        {"model": "lm", "inputs": "a", "options": {"sample": True, "top_k": 3, "max_length": 4}, "stream": True},
        {"model": "translate", "inputs": ["ab"], "glossary": {"ab": "b"}, "options": {"words": True}},
    ],
    "/score": [{"model": "lm", "inputs": ["a"], "outputs": ["b"]}],
    "/attention": [{"model": "translate", "text": "ab", "output": "a"}],
    "/fill": [{"text": "a <mask>", "n_best": 2}],
    "/classify": [{"text": "a", "n_best": 2}],
    "/tag": [{"text": "a b"}],
    "/answer": [{"text": "a"}],
    "/image": [{"image": "aGVsbG8=", "n_best": 1}],
}  # fmt: skip


def make_request(draw: random.Random) -> FuzzRequest:
    """A request that may be right, but hardly ever is."""
    route = draw.choice(WITH_BODY if draw.random() < 0.95 else ROUTES)
    path = route.path.replace("{name}", draw.choice(["lm", "translate", "x", "..", "\x00"]))
    body = copy.deepcopy(draw.choice(GOOD.get(route.path, [{}])))
    for _ in range(draw.choice([0, 1, 1, 2, 3])):
        change_body(body, draw)
    method = route.method if draw.random() < 0.95 else draw.choice(METHODS)
    headers = {"content-type": "application/json"}
    if draw.random() < 0.05:
        headers["content-type"] = draw.choice(KINDS)
    if draw.random() < 0.03:
        name = draw.choice(["host", "origin", "authorization", "content-length", "cookie", "expect"])
        headers[name] = draw.choice(["", "x", "evil.example", "Bearer x", "-1", "100-continue", "9" * 30])
    content = json.dumps(body).encode()
    if draw.random() < 0.1:
        content = flip_bytes(content, draw)
    return FuzzRequest(method, path, {k: v.encode("latin-1") for k, v in headers.items()}, content)


def change_body(body: dict[str, object], draw: random.Random) -> None:
    """Change one field somewhere in a body."""
    place: object = body
    while isinstance(place, dict) and place:
        key = draw.choice(list(place))
        inner = place[key]
        if isinstance(inner, dict) and inner and draw.random() < 0.7:
            place = inner
            continue
        match draw.randrange(4):
            case 0:
                del place[key]
            case 1:
                place[draw.choice(TEXTS)] = inner
            case 2:
                place[key] = draw.choice(VALUES)
            case _:
                text = draw.choice(TEXTS)
                place[key] = [text] * draw.choice([1, 2, 17]) if isinstance(inner, list) else text
        return


def flip_bytes(data: bytes, draw: random.Random) -> bytes:
    """Change, drop or repeat some bytes."""
    out = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        i = draw.randrange(len(out) + 1)
        out[i : i + draw.randint(0, 3)] = bytes(draw.randrange(256) for _ in range(draw.randint(0, 3)))
    return bytes(out)


def make_from_schema(count: int, seed: int) -> list[FuzzRequest]:
    """Requests that the OpenAPI description allows, and as many that it does not."""
    schema = schemathesis.openapi.from_dict(build_app(ServerSettings({"a": "a"})).openapi())
    operations = [found.ok() for found in schema.get_all_operations()]
    out: list[FuzzRequest] = []
    for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):
        for operation in operations:

            @hypothesis.seed(seed)
            @hypothesis.settings(
                max_examples=max(count // 2 // len(operations), 1), database=None, deadline=None,
                phases=[hypothesis.Phase.generate], suppress_health_check=list(hypothesis.HealthCheck),
            )  # fmt: skip
            @hypothesis.given(operation.as_strategy(generation_mode=mode))
            def gather(case: schemathesis.Case) -> None:
                out.append(pack_case(case))

            with contextlib.suppress(hypothesis.errors.Unsatisfiable):  # nothing is forbidden here
                gather()
    return out


def pack_case(case: schemathesis.Case) -> FuzzRequest:
    """A request of schemathesis, as the server sees it."""
    prepared = requests.Request(**case.as_transport_kwargs(base_url="http://localhost")).prepare()
    target = urlsplit(str(prepared.url))
    content = prepared.body if isinstance(prepared.body, bytes) else str(prepared.body or "").encode()
    headers = {k: str(v).encode("latin-1", "replace") for k, v in prepared.headers.items()}
    return FuzzRequest(str(prepared.method), unquote(target.path), headers, content, target.query.encode())


async def run_fuzz(server: LocalServer, given: Iterable[FuzzRequest]) -> Counter[int]:
    """Send requests, several at a time; the statuses of the answers. Raises on one that was not planned."""
    statuses, rest = Counter[int](), iter(given)

    async def client() -> None:
        for request in rest:
            status, body = await server.send(request)
            assert status in PLANNED, (request, status, body[:300])
            if status >= 400 and request.method != "HEAD":
                assert "error" in json.loads(body), (request, status, body[:300])
            statuses[status] += 1

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    assert server.context.inference.restarts == 0 and server.context.admission.count == 0
    return statuses


def run_fuzz_http(http: httpx.Client, given: Iterable[FuzzRequest]) -> Counter[int]:
    """As `run_fuzz`, through HTTP, one at a time."""
    statuses = Counter[int]()
    for request in given:
        try:
            answer = http.request(request.method, quote(request.path), headers=request.headers, content=request.content)
        except (httpx.LocalProtocolError, httpx.RemoteProtocolError, ValueError):
            continue  # no HTTP at all: neither side accepts it
        assert answer.status_code in PLANNED, (request, answer.status_code, answer.text[:300])
        statuses[answer.status_code] += 1
    assert http.get("/readyz").status_code == 200
    return statuses


async def fuzz(count: int, models: Mapping[str, Path], said: Callable[[str], None] = print) -> Counter[int]:
    """Send this many requests: of a hundred, 98 changed at random, two made from the description."""
    total = Counter[int]()
    async with start_in_process(models, items=16, seconds=60) as server:
        for seed in range(-(-count // BATCH)):
            size = min(BATCH, count - BATCH * seed)
            draw, described = random.Random(seed), make_from_schema(size // 50, seed)
            changed = (make_request(draw) for _ in range(size - len(described)))
            total += await run_fuzz(server, (*described, *changed))
            said(f"{min((seed + 1) * BATCH, count):,} {dict(sorted(total.items()))}")
    return total


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        models = make_models(Path(folder))
        began = time.monotonic()
        total = asyncio.run(fuzz(count, models, lambda text: print(text, flush=True)))
        print(f"{total.total():,} requests in {time.monotonic() - began:.0f} s, none answered by accident")
        with start_server(models, Path(folder)) as running, running.client() as http:
            draw = random.Random(-1)
            print("by HTTP", dict(run_fuzz_http(http, (make_request(draw) for _ in range(min(count, 2000))))))
            assert "Traceback" not in running.log.read_text()


if __name__ == "__main__":
    main(int(sys.argv[1]))
