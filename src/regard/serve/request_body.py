"""Bodies of requests: read with limits, parsed strictly.

JSON, forms and files. Whatever is not what it should be is a 400: bytes that are not UTF-8, lone surrogates, NaN, numbers of
ten thousand digits, a thousand nested lists, a million values.

A body is counted before it is parsed, in time linear in its bytes: parsers hold the event loop, and the sender may have no key.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncGenerator
from typing import Annotated, NoReturn, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, Field, ValidationError
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from regard.serve.api_error import ApiError, invalid
from regard.serve.server_settings import Limits

B = TypeVar("B", bound=BaseModel)
Texts = str | Annotated[list[str], Field(fail_fast=True)]
"""One text or several, of which the first fault is told, not every one."""
MAX_FIELDS = 200
VALUES_PER_TEXT, MORE_VALUES = 16, 1000
"""Values that the JSON of a request may have: for each text, and beside them. A chat message in parts has 7."""
MAX_DIGITS = 40
"""Digits of a whole number."""
PIECE = 1 << 16
"""Bytes of a form that are parsed at a time, between which others are answered."""
_STRINGS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.S)
"""Strings, also one that never ends. The quantifiers are possessive, because one that gives back is quadratic there."""
_BRACKETS = re.compile(r"[\[\]{}]")


async def read_body(request: Request, limits: Limits) -> bytes:
    """All bytes of a body, if they are not too many and do not take too long."""
    told = request.headers.get("content-length", "")
    if told.isdecimal() and int(told[:20]) > limits.body:
        raise ApiError(413, f"a request should have at most {limits.body:,} bytes, got {told[:20]}")
    data = bytearray()
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for chunk in request.stream():
                data += chunk
                if len(data) > limits.body:
                    raise ApiError(413, f"a request should have at most {limits.body:,} bytes")
    except TimeoutError:
        raise ApiError(408, f"the request did not arrive within {limits.body_seconds:g} seconds") from None
    except ClientDisconnect:
        raise ApiError(400, "the client closed the connection") from None
    return bytes(data)


async def parse_body(request: Request, data: bytes, limits: Limits, *, forms: bool, files: bool) -> dict[str, object]:
    """The fields of a body, by its content type; JSON unless it says otherwise."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/x-www-form-urlencoded" and forms:
        return await _parse_urlencoded(data, limits)
    if kind == "multipart/form-data" and (forms or files):
        return await _parse_multipart(request, data, limits, files)
    if files and (kind.startswith("image/") or kind == "application/octet-stream"):
        return {"image": base64.b64encode(data).decode()}
    return parse_json_object(data, limits)


def parse_json_object(data: bytes, limits: Limits) -> dict[str, object]:
    """A JSON object; an empty body is an empty one."""
    if not data.strip():
        return {}
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise invalid(f"the body is not UTF-8 (byte {error.start})") from None
    _check_structure(text, limits)
    try:
        found = json.loads(text, parse_constant=_refuse_constant, parse_int=_parse_int)
    except (ValueError, RecursionError) as error:
        raise invalid(f"the body is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise invalid(f"the body should be a JSON object, got {type(found).__name__}")
    return found


def validate_body(kind: type[B], fields: dict[str, object]) -> B:
    """The fields as a request of this kind; the first fault in words if they are not."""
    _refuse_surrogates(fields)
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"][:2])
        raise invalid(f"{place}: {first['msg']}" if place else str(first["msg"]), param=place or None) from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")


def _parse_int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number should have at most {MAX_DIGITS} digits, got {len(digits):,}")
    return int(digits)


def _check_structure(text: str, limits: Limits) -> None:
    """Refuse JSON of too many values or levels before it is parsed."""
    most = VALUES_PER_TEXT * limits.items + MORE_VALUES
    quotes = text.count('"')
    if quotes > 4 * most + limits.characters:  # those of keys and strings, and those inside of texts
        raise invalid(
            f"a request should have at most {most:,} values and {limits.characters:,} characters, "
            f"got {quotes:,} quotation marks"
        )
    rest = _STRINGS.sub("", text)
    opened, closed = rest.count("[") + rest.count("{"), rest.count("]") + rest.count("}")
    if (values := opened + rest.count(",") + 1) > most:
        raise invalid(
            f"a request of {limits.items:,} texts should have at most {most:,} values in its JSON, got {values:,}"
        )
    if closed > opened:
        raise invalid("the body is not JSON: it closes more brackets than it opens")
    depth = 0
    for bracket in _BRACKETS.findall(rest):
        depth += 1 if bracket in "[{" else -1
        if depth > limits.depth:
            raise invalid(f"the JSON is nested more than {limits.depth} levels deep")


def _refuse_surrogates(value: object) -> None:
    """Text that cannot be written as UTF-8 cannot be sent on either."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise invalid("a text has half of a surrogate pair, which is no character") from None
    elif isinstance(value, dict):
        for key, inner in value.items():
            _refuse_surrogates(key)
            _refuse_surrogates(inner)
    elif isinstance(value, list):
        for inner in value:
            _refuse_surrogates(inner)


async def _parse_urlencoded(data: bytes, limits: Limits) -> dict[str, object]:
    if (count := data.count(b"%")) > (most := 4 * limits.characters + MORE_VALUES):  # a character has up to four bytes
        raise invalid(f"a form of {limits.characters:,} characters should have at most {most:,} signs %, got {count:,}")
    try:
        pairs = await asyncio.to_thread(
            parse_qsl, data.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS
        )
    except (UnicodeDecodeError, ValueError):
        raise invalid(f"the form is not UTF-8, or has more than {MAX_FIELDS} fields") from None
    return _gather(pairs)


async def _parse_multipart(request: Request, data: bytes, limits: Limits, files: bool) -> dict[str, object]:
    async def stream() -> AsyncGenerator[bytes, None]:
        for start in range(0, len(data), PIECE):
            yield data[start : start + PIECE]
            await asyncio.sleep(0)

    parser = MultiPartParser(
        request.headers, stream(), max_files=limits.items, max_fields=MAX_FIELDS, max_part_size=limits.body
    )
    try:
        form = await parser.parse()
    except (MultiPartException, ValueError, LookupError, AssertionError) as error:
        raise invalid(f"the form cannot be read: {error}") from None
    pairs = []
    for name, value in form.multi_items():
        if isinstance(value, UploadFile):
            if not files:
                raise invalid(f"{name} is a file, and no file is wanted here")
            pairs.append((name, base64.b64encode(await value.read()).decode()))
        else:
            pairs.append((name, value))
    await form.close()
    return _gather(pairs)


def _gather(pairs: list[tuple[str, str]]) -> dict[str, object]:
    """Fields by name; a name that comes several times has a list."""
    out: dict[str, object] = {}
    for name, value in pairs:
        before = out.get(name)
        out[name] = value if before is None else [*(before if isinstance(before, list) else [before]), value]
    return out
