"""Bodies are counted before they are parsed."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest
from starlette.requests import Request

from regard.serve.api_error import ApiError
from regard.serve.request_body import parse_json_object
from regard.serve.server_settings import Limits
from tests.serve.in_process import FuzzRequest, LocalServer
from tests.serve.running import KEY
from tests.serve.worst_bodies import BODIES, LARGEST, open_server

COUNTED = "a request of 128 texts should have at most 3,048 values in its JSON, got "
REFUSALS = {
    "a string of quotes": "should have at most 3,048 values and 100,000 characters, got 2,097,",
    "quotes": "got 4,194,303 quotation marks",
    "empty strings": "got 2,796,",
    "keys": "quotation marks",
    "biases": "quotation marks",
    "terms": "quotation marks",
    "closed brackets": "closes more brackets than it opens",
    "digits": "a number should have at most 40 digits, got 4,194,29",
    "long numbers": "a number should have at most 40 digits, got 4,000",
    "a form of escapes": "a form of 100,000 characters should have at most 401,000 signs %, got 1,398,",
    "a form of fields": "or has more than 200 fields",
    **dict.fromkeys(("numbers", "outputs", "texts to fill", "images", "prompts", "stops", "embedded"), COUNTED),
    **dict.fromkeys(("messages", "parts", "tools", "empty lists", "empty objects", "brackets"), COUNTED),
}


def send(request: FuzzRequest, server: LocalServer | None = None) -> tuple[int, str]:
    status, body = asyncio.run((server or open_server()).send(request))
    return status, body.decode()


@pytest.mark.parametrize("name", REFUSALS)
def test_a_body_beyond_every_measure_is_refused_for_what_it_has_too_much_of(name: str) -> None:
    status, words = send(BODIES[name].make(LARGEST))
    assert status == 400 and REFUSALS[name] in words


def test_a_string_without_an_end_is_read_once() -> None:
    """In a process of its own: a regular expression that gives back would hold this one for a day."""
    code = (
        "import asyncio\n"
        "from tests.serve.worst_bodies import BODIES, Limits, LARGEST\n"
        "from regard.serve.request_body import parse_json_object\n"
        "for name in ('a string without an end', 'a string of backslashes'):\n"
        "    try: parse_json_object(BODIES[name].make(LARGEST).content, Limits(characters=LARGEST))\n"
        "    except Exception as error: print(error.message)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    lines = said.stdout.splitlines()
    assert len(lines) == 2 and all("Unterminated string starting at" in line for line in lines), said


@pytest.mark.parametrize("path", ["/run", "/v1/completions", "/nothing", "/metrics"])
@pytest.mark.parametrize("header", [{}, {"authorization": b"Bearer a-key-of-somebody-else"}])
def test_a_stranger_is_refused_before_the_body_is_read(path: str, header: dict[str, bytes]) -> None:
    server, request = open_server([KEY]), BODIES["numbers"].make(1000)
    assert asyncio.run(count_reads(server, FuzzRequest("POST", path, header, request.content))) == (401, 0)


def test_a_wrong_key_in_a_header_is_refused_before_the_body_of_libretranslate() -> None:
    request = FuzzRequest("POST", "/translate", {"authorization": b"Bearer a-key-of-somebody-else"}, b"{")
    assert asyncio.run(count_reads(open_server([KEY]), request)) == (401, 0)


def test_a_key_in_the_query_needs_no_body() -> None:
    request = FuzzRequest("GET", "/languages", query=f"api_key={KEY}".encode(), content=b"{")
    assert asyncio.run(count_reads(open_server([KEY]), request)) == (200, 0)


async def count_reads(server: LocalServer, request: FuzzRequest) -> tuple[int, int]:
    """The status of the answer, and how often a part of the body was read for it."""
    reads, original = 0, Request.stream

    def stream(self: Request):  # type: ignore[no-untyped-def]
        nonlocal reads
        reads += 1
        return original(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Request, "stream", stream)
        status, _ = await server.send(request)
    return status, reads


@pytest.mark.parametrize(
    ("path", "field", "item"),
    [
        ("/run", "inputs", 1), ("/score", "outputs", 1), ("/fill", "text", 1), ("/image", "image", 1), ("/translate", "q", 1),
        ("/v1/completions", "prompt", 1), ("/v1/completions", "stop", 1), ("/v1/embeddings", "input", 1),
        ("/v1/chat/completions", "messages", 1),
    ],
)  # fmt: skip
def test_a_list_of_wrong_items_is_refused_at_the_first_one(path: str, field: str, item: object) -> None:
    from pydantic import ValidationError

    from regard.serve.app import ROUTES

    body = next(route.body for route in ROUTES if route.path == path)
    assert body is not None
    with pytest.raises(ValidationError) as found:
        body.model_validate({field: [item] * 1000})
    assert len([each for each in found.value.errors() if each["loc"][0] == field]) <= 2


def test_a_conversation_as_long_as_the_limit_is_parsed() -> None:
    limits = Limits()
    message = {"role": "user", "content": [{"type": "text", "text": 'she said: "yes", [and] {no}'}]}
    body = {"model": "a", "messages": [message] * limits.items}
    assert parse_json_object(json.dumps(body).encode(), limits) == body


def test_brackets_in_texts_are_no_structure() -> None:
    body = {"inputs": ["[" * 1000, '"[' * 1000, "\\" * 999, '\\"{' * 99, ",,," * 9999]}
    assert parse_json_object(json.dumps(body).encode(), Limits()) == body
    with pytest.raises(ApiError, match="nested more than 16 levels deep"):
        parse_json_object(b'{"a": ' + b"[" * 16 + b"]" * 16 + b"}", Limits())
    assert parse_json_object(b'{"a": ' + b"[" * 15 + b"]" * 15 + b"}", Limits())
