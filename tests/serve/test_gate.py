"""Who may ask what: keys, hosts, origins and bodies, over the whole table of routes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest

from regard.errors import SpecError
from regard.serve.app import ROUTES, build_app
from regard.serve.authentication import KEY_IN_BODY, PUBLIC
from regard.serve.call import Route
from regard.serve.gate import is_allowed_host
from regard.serve.libretranslate_routes import unescape_html
from regard.serve.server_settings import Limits, ServerSettings, name_models, parse_limits, read_keys
from tests.serve.in_process import FuzzRequest
from tests.serve.running import KEY
from tests.serve.worst_bodies import open_server

ALLOWED = ("/healthz", "/readyz", "/", "/favicon.ico")
"""All that answers without a key; written here once more, on purpose."""


def ask(
    settings: ServerSettings, method: str, path: str, headers: Mapping[str, str] | None = None, **more: object
) -> httpx.Response:
    """A request to an application whose models are not loaded."""

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(build_app(settings), raise_app_exceptions=False, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return await http.request(method, path, headers=dict(headers or {}), **more)  # type: ignore[arg-type]

    return asyncio.run(send())


OPEN = ServerSettings({"a": "nowhere"})
LOCKED = ServerSettings({"a": "nowhere"}, keys=[KEY])


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_only_public_routes_answer_without_the_right_key(route: Route) -> None:
    path = route.path.replace("{name}", "a")
    for headers in ({}, bearer("another-key-that-is-long"), bearer(""), {"Authorization": f"Basic {KEY}"}):
        status = ask(LOCKED, route.method, path, headers, json={} if route.body else None).status_code
        assert (status == 401) != (route.path in ALLOWED), (headers, status)
    assert ask(LOCKED, route.method, path, bearer(KEY), json={} if route.body else None).status_code != 401


@pytest.mark.parametrize("path", ["/openapi.json", "/nothing", "/v1/nothing", "/static/../x", "/docs"])
def test_paths_outside_of_the_table_are_denied_too(path: str) -> None:
    assert ask(LOCKED, "GET", path).status_code == 401
    assert ask(LOCKED, "GET", path, bearer(KEY)).status_code in (200, 404)


def test_the_public_list() -> None:
    assert PUBLIC == ALLOWED
    assert ask(LOCKED, "GET", "/").status_code == 200


@pytest.mark.parametrize("path", KEY_IN_BODY)
def test_libretranslate_clients_have_the_key_in_the_body(path: str) -> None:
    method = "POST" if path in ("/translate", "/detect") else "GET"
    for key, refused in ((KEY, False), ("another-key-that-is-long", True), (None, True), (["x"], True)):
        body = {"api_key": key, "q": "a", "target": "b"}
        assert (ask(LOCKED, method, path, json=body).status_code == 401) == refused
    form = {"api_key": KEY, "q": "a", "target": "b"}
    assert ask(LOCKED, method, path, data=form).status_code != 401
    assert ask(LOCKED, method, f"{path}?api_key={KEY}").status_code != 401


def test_other_routes_do_not_take_a_key_from_the_body() -> None:
    assert ask(LOCKED, "POST", "/run", json={"api_key": KEY, "inputs": "a"}).status_code == 401


def test_a_key_as_openai_says_it_is_missing() -> None:
    answer = ask(LOCKED, "GET", "/v1/models")
    assert answer.json()["error"]["code"] == "invalid_api_key" and answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("host", "passes"),
    [
        ("localhost", True), ("localhost:5000", True), ("127.0.0.1:80", True), ("[::1]:5000", True), ("::1", False),
        ("192.168.1.4", True), ("evil.example", False), ("localhost.evil.example", False), ("", False),
        ("127.0.0.1.evil.example", False), ("good.example:5000", True), ("GOOD.example", True), ("localhost:x", False),
    ],
)  # fmt: skip
def test_hosts(host: str, passes: bool) -> None:
    assert is_allowed_host(host, ("good.example",)) == passes


def test_a_page_elsewhere_cannot_ask() -> None:
    assert ask(OPEN, "GET", "/languages", {"host": "evil.example"}).status_code == 421
    assert ask(OPEN, "GET", "/languages", {"origin": "http://evil.example"}).status_code == 403
    assert ask(OPEN, "GET", "/languages", {"origin": "null"}).status_code == 403
    assert ask(OPEN, "GET", "/languages", {"sec-fetch-site": "cross-site"}).status_code == 403
    answer = ask(OPEN, "GET", "/languages", {"origin": "http://localhost"})
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert answer.headers["x-frame-options"] == "DENY" and "server" not in answer.headers


NESTED = "[" * 1000 + "]" * 1000


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"inputs": "\xff"}', "is not UTF-8 (byte 12)"),
        (b'{"inputs": "\\ud800"}', "half of a surrogate pair"),
        (b'{"inputs": NaN}', "NaN is no number in JSON"),
        (b'{"inputs": "a", "options": {"alpha": 1e999}}', "alpha"),
        (b'{"inputs": ' + NESTED.encode() + b"}", "nested more than 16 levels deep"),
        (b'{"inputs": "[[[[[[[[[[[[[[[[[[[[", "model": "x"}', "no model"),
        (b'{"inputs": ' + b"1" * 5000 + b"}", "not JSON"),
        (b"[]", "should be a JSON object, got list"),
        (b"{", "is not JSON"),
        (b"", "inputs"),
    ],
)
def test_bodies_that_are_not_what_they_should_be(body: bytes, words: str) -> None:
    answer = ask(OPEN, "POST", "/run", {"content-type": "application/json"}, content=body)
    assert answer.status_code in (400, 404, 503) and (words in answer.json()["error"] or answer.status_code == 503)
    assert answer.status_code == 400 or "model" in answer.json()["error"]


def test_bodies_that_are_too_long() -> None:
    small = ServerSettings({"a": "nowhere"}, limits=Limits(body=100))
    assert ask(small, "POST", "/run", json={"inputs": "a" * 200}).status_code == 413

    async def chunks():  # type: ignore[no-untyped-def]
        for _ in range(20):
            yield b" " * 10

    assert ask(small, "POST", "/run", content=chunks()).status_code == 413


def test_errors_have_the_shape_of_their_api() -> None:
    assert ask(OPEN, "POST", "/v1/completions", content=b"{").json()["error"]["type"] == "invalid_request_error"
    assert ask(OPEN, "GET", "/v1/nothing").json()["error"]["type"] == "not_found_error"
    assert ask(OPEN, "GET", "/nothing").json() == {"error": "there is nothing at /nothing"}
    assert ask(OPEN, "DELETE", "/run").json() == {"error": "DELETE is not allowed here"}
    loading = ask(OPEN, "POST", "/run", json={"inputs": "a"})
    assert loading.status_code == 503 and loading.headers["retry-after"]


def test_too_many_requests_are_refused_at_once() -> None:
    async def send() -> list[int]:
        app = build_app(ServerSettings({"a": "nowhere"}, limits=Limits(requests=3, client_requests=2)))
        admission = app.state.server.admission
        out = []
        for client in ("127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.3"):
            transport = httpx.ASGITransport(app, client=(client, 1))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
                answer = await http.post("/run", json={"inputs": "a"})
                assert answer.headers["retry-after"]
                out.append(answer.status_code)
            admission._clients[client] += 1  # as if it were still in flight
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
            out.append((await http.post("/run", json={"inputs": "a"})).status_code)
            admission.is_draining = True
            out.append((await http.get("/readyz")).status_code)
        return out

    assert asyncio.run(send()) == [503, 503, 503, 503, 429, 503]  # the first three: no models yet


def test_elsewhere_needs_a_key(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"on 0\.0\.0\.0 can be reached from elsewhere and needs a key"):
        ServerSettings({"a": "a"}, host="0.0.0.0")
    ServerSettings({"a": "a"}, host="0.0.0.0", keys=[KEY])
    ServerSettings({"a": "a"}, host="127.0.0.9")
    with pytest.raises(SpecError, match="a key should be 16 or more printable"):
        ServerSettings({"a": "a"}, keys=["short"])
    with pytest.raises(SpecError, match="TLS needs both --tls-cert and --tls-key"):
        ServerSettings({"a": "a"}, tls_key="x")
    with pytest.raises(SpecError, match="needs a model folder, or --runs"):
        ServerSettings({})
    (tmp_path / "keys").write_text(f"# ours\n\n{KEY}\n")
    assert read_keys(tmp_path / "keys") == [KEY]
    (tmp_path / "keys").write_text("# none\n")
    with pytest.raises(SpecError, match="has no key; write one of at least 16 characters"):
        read_keys(tmp_path / "keys")


def test_names_and_limits_of_the_command_line() -> None:
    assert name_models(["runs/dates", "b=runs/other"]) == {"dates": "runs/dates", "b": "runs/other"}
    with pytest.raises(SpecError, match="two models have the name dates"):
        name_models(["runs/dates", "old/dates"])
    with pytest.raises(SpecError, match="should be letters, digits and -_"):
        name_models(["a/b=x"])
    assert parse_limits(["beams=4", "seconds=2.5", "address_share=1"]) == Limits(beams=4, seconds=2.5, address_share=1)
    with pytest.raises(SpecError, match="no limit 'beam'; did you mean 'beams'"):
        parse_limits(["beam=4"])
    with pytest.raises(SpecError, match="the limit beams should be a number, got 'x'"):
        parse_limits(["beams=x"])
    with pytest.raises(SpecError, match="the limit beams should be above 0 and finite, got 0"):
        parse_limits(["beams=0"])


def test_the_api_process_imports_neither_torch_nor_tokenizers() -> None:
    code = (
        "import sys, regard.serve.server, regard.serve.app\n"
        "from regard.serve.libretranslate_routes import name_language\n"
        "print(name_language('de'), [m for m in ('torch', 'tokenizers', 'safetensors') if m in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "German []\n"


def test_the_description() -> None:
    found = ask(OPEN, "GET", "/openapi.json").json()
    assert {route.path for route in ROUTES} == set(found["paths"])
    body = found["paths"]["/translate"]["post"]["requestBody"]["content"]
    assert {"application/json", "application/x-www-form-urlencoded"} <= set(body)
    text = json.dumps(found)
    names = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert names <= set(found.get("components", {}).get("schemas", {}))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("&#" + "9" * 5000 + ";", "\ufffd"), ("&#" + "9" * 5000, "\ufffd"), ("&#" + "0" * 5000 + "65;", "A"),
        ("&#x" + "f" * 5000 + ";", "\ufffd"), ("&#65;&amp;&#X41;&#0;", "A&A\ufffd"), ("&#;&#", "&#;&#"), ("a" * 9, "a" * 9),
    ],
)  # fmt: skip
def test_a_reference_to_no_character_is_read_as_a_browser_does(text: str, wanted: str) -> None:
    assert unescape_html(text) == wanted


@pytest.mark.parametrize("after", ["--5", "-", "", "1-", "x", "\u00b2", "1" * 19, "1_0", "+1", " 1"])
def test_a_step_that_is_no_number_is_refused(after: str, tmp_path: Path) -> None:
    settings = ServerSettings({}, runs=str(tmp_path))
    answer = ask(settings, "GET", "/runs/x", params={"after": after})
    assert (answer.status_code, answer.json()) == (400, {"error": "after should be the number of a step"})


def test_a_length_that_is_no_number_is_no_fault_of_ours() -> None:
    request = FuzzRequest("POST", "/run", {"content-length": b"\xb2"}, b"{}")
    assert asyncio.run(open_server().send(request))[0] == 400


@pytest.mark.parametrize("items", [1, 128])
def test_as_many_texts_are_allowed_as_the_limit_says(items: int) -> None:
    server = open_server(limits=Limits(items=items))
    for path, body in (
        ("/run", {"inputs": ["a"] * items}), ("/run", {"inputs": ["a"] * items, "prefix": "b", "glossary": {"a": "b"}}),
        ("/score", {"inputs": ["a"] * items, "outputs": ["b"] * items}), ("/fill", {"text": ["a"] * items}),
        ("/translate", {"q": ["a"] * items, "target": "target"}), ("/attention", {"text": "a", "output": "b"}),
        ("/v1/embeddings", {"model": "a", "input": ["a"] * items}),
        ("/v1/completions", {"model": "a", "prompt": ["a"] * items}),
    ):  # fmt: skip
        status, said = asyncio.run(server.send(FuzzRequest("POST", path, content=json.dumps(body).encode())))
        assert status in (400, 503) and b"at most" not in said, (path, said)
    body = {"inputs": ["a"] * (items + 1)}
    status, said = asyncio.run(server.send(FuzzRequest("POST", "/run", content=json.dumps(body).encode())))
    assert said.decode() == f'{{"error":"a request should have at most {items} texts, got {items + 1}"}}'


def test_all_that_is_sent_counts_among_the_characters() -> None:
    server = open_server(limits=Limits(characters=10))
    for more in ({"prefix": "a" * 9}, {"to": "a" * 9}, {"glossary": {"a": "b" * 8}}):
        body = {"inputs": "ab", **more}
        status, said = asyncio.run(server.send(FuzzRequest("POST", "/run", content=json.dumps(body).encode())))
        assert status == 400 and b"at most 10 characters, got 11" in said
