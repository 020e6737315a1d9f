"""Requests of all kinds to a running server: any answer but a planned one is a bug.

    python -m tests.serve.fuzz 1000000

Bodies that are right are changed at random: fields dropped, renamed, replaced by values of any type, texts by hostile ones,
bytes flipped, headers and methods exchanged.
"""

from __future__ import annotations

import copy
import json
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

import httpx

from regard.serve.app import ROUTES
from tests.serve.running import make_models, start_server

PLANNED = {200, 400, 401, 403, 404, 405, 408, 413, 421, 429, 501}
"""Statuses of requests that are one at a time: nothing is busy, and nothing takes long."""
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


def make_request(draw: random.Random) -> dict[str, object]:
    """A request that may be right, but hardly ever is."""
    route = draw.choice(ROUTES)
    path = route.path.replace("{name}", draw.choice(["lm", "translate", "x", "%2e%2e", "%00"]))
    body = copy.deepcopy(draw.choice(GOOD.get(route.path, [{}])))
    for _ in range(draw.choice([0, 1, 1, 2, 3])):
        change_body(body, draw)
    method = (
        route.method
        if draw.random() < 0.95
        else draw.choice(["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"])
    )
    headers = {"content-type": "application/json"}
    if draw.random() < 0.05:
        headers["content-type"] = draw.choice(
            [
                "text/plain",
                "application/x-www-form-urlencoded",
                "multipart/form-data; boundary=x",
                "image/png",
                "\u00ff",
            ]
        )
    if draw.random() < 0.03:
        name = draw.choice(["host", "origin", "authorization", "content-length", "cookie", "expect"])
        headers[name] = draw.choice(["", "x", "evil.example", "Bearer x", "-1", "100-continue", "9" * 30])
    content = json.dumps(body).encode()
    if draw.random() < 0.1:
        content = flip_bytes(content, draw)
    return {
        "method": method,
        "url": path,
        "headers": {k: v.encode("latin-1") for k, v in headers.items()},
        "content": content,
    }


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


def run_fuzz(http: httpx.Client, count: int, seed: int) -> Counter[int]:
    """Send this many requests; the statuses of the answers. Raises on one that was not planned."""
    draw, statuses = random.Random(seed), Counter[int]()
    for i in range(count):
        request = make_request(draw)
        try:
            answer = http.request(**request)  # type: ignore[arg-type]
        except (httpx.LocalProtocolError, httpx.RemoteProtocolError, ValueError):
            continue  # no HTTP at all: neither side accepts it
        assert answer.status_code in PLANNED, (seed, i, request, answer.status_code, answer.text[:300])
        statuses[answer.status_code] += 1
    assert http.get("/readyz").status_code == 200
    return statuses


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        models = make_models(Path(folder))
        with start_server(models, Path(folder)) as running, running.client() as http:
            for seed in range(-(-count // 1000)):
                found = run_fuzz(http, min(1000, count - 1000 * seed), seed)
                print(seed, dict(found), flush=True)
            assert "Traceback" not in running.log.read_text()


if __name__ == "__main__":
    main(int(sys.argv[1]))
