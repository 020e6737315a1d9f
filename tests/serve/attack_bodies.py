"""Attacks by bodies: giant, deep, of millions of items, never closed, wrongly encoded, or right and costly."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Iterable
from functools import cache

from tests.serve.attacks import Attacker, Target, Visit, add

BODY = 4 << 20
"""Bytes that a server takes by default."""
BELOW = BODY - (64 << 10)
"""Bytes of what should be just below that limit."""


def replace_field(by: Attacker, value: bytes) -> tuple[Target, bytes]:
    """A body with one field as given, written as it is."""
    target, body = by.choose_with_body()
    name = by.draw.choice(list(body) or ["inputs"])
    rest = json.dumps({k: v for k, v in body.items() if k != name}).encode()[1:-1]
    return target, b"{" + rest + b", " * bool(rest) + json.dumps(name).encode() + b": " + value + b"}"


@cache
def fill(opening: bytes, unit: bytes, closing: bytes, size: int) -> bytes:
    return opening + unit * ((size - len(opening) - len(closing)) // len(unit)) + closing


@add("giant bodies", 4)
def send_much(by: Attacker) -> Visit:
    """One text of nearly the limit, or of more; or a length that says so; or chunks that never end."""
    match by.draw.randrange(4):
        case 0:
            target, data = replace_field(by, fill(b'"', b"a b ", b'"', BELOW))
            return Visit(target.path, [by.write(target, data)])
        case 1:
            target, data = replace_field(by, fill(b'"', b"\xf0\x9f\x98\x80", b'"', 2 * BODY))
            return Visit(target.path, [by.write(target, data)], due=False)
        case 2:
            target, _ = by.choose_with_body()
            length = by.draw.choice([BODY + 1, 10**12, 10**30, "9" * 4000])
            return Visit(target.path, [by.write(target, length=length)])
        case _:
            target, _ = by.choose_with_body()
            head = by.write(target, headers=["Transfer-Encoding: chunked"]).replace(b"Content-Length: 0\r\n", b"")
            return Visit(target.path, [head, *([b"10000\r\n" + bytes(1 << 16) + b"\r\n"] * 80)], due=False)


@add("deep nesting", 4)
def nest(by: Attacker) -> Visit:
    deep = by.draw.choice([17, 2000, 100_000, BELOW // 12])
    opening, closing = by.draw.choice([(b"[", b"]"), (b'{"a":', b"}"), (b'[{"":', b"}]")])
    value = opening * deep + b"1" + closing * (deep if by.draw.random() < 0.7 else 0)
    target, data = replace_field(by, value)
    return Visit(target.path, [by.write(target, data if by.draw.random() < 0.7 else value)])


ITEMS = (b"1,", b"[],", b'"",', b"{},", b"null,", b'"a",', b"-1e9,", b"[[]],")


@add("millions of items", 4)
def send_items(by: Attacker) -> Visit:
    size = by.draw.choice([100_000, BELOW])
    if by.draw.random() < 0.3:
        entries = b"{" + b",".join(_list_entries(size)) + b"}"
        target, data = replace_field(by, entries)
        return Visit(target.path, [by.write(target, data if by.draw.random() < 0.5 else entries)])
    unit = by.draw.choice(ITEMS)
    target, data = replace_field(by, fill(b"[", unit, unit[:-1] + b"]", size))
    return Visit(target.path, [by.write(target, data)])


@cache
def _list_entries(size: int) -> tuple[bytes, ...]:
    return tuple(b'"k%d":1' % i for i in range(size // 12))


@add("unclosed strings", 4)
def leave_open(by: Attacker) -> Visit:
    unit = by.draw.choice([b'\\"', b"\\\\", b'"', b"a", b"\\u", b'",', b'"\\'])
    size = by.draw.choice([1000, 32_000, 400_000, BELOW])
    target, data = replace_field(by, fill(b'"', unit, b"", size))
    return Visit(target.path, [by.write(target, data.removesuffix(b"}"))])


@add("duplicate keys and headers")
def repeat(by: Attacker) -> Visit:
    target, body = by.choose_with_body()
    data = json.dumps(body).encode()
    match by.draw.randrange(4):
        case 0:
            once = data[1:-1]
            data = b"{" + b",".join([once] * by.draw.choice([2, 1000])) + b"}"
            return Visit(target.path, [by.write(target, data)])
        case 1:
            twice = by.draw.choice(
                ["Host: localhost", f"Content-Length: {len(data) + 1}", "Content-Type: text/plain", "Authorization: Bearer x",
                 f"Content-Length: {len(data)}", "Origin: http://localhost", "Transfer-Encoding: chunked"]
            )  # fmt: skip
            return Visit(target.path, [by.write(target, data, [twice])], due=False)
        case 2:
            many = [f"X-{i}: {i}" for i in range(by.draw.choice([100, 2000, 30_000]))]
            return Visit(target.path, [by.write(target, data, many)], due=False)
        case _:
            long = "a" * by.draw.choice([8000, 40_000, 1_000_000])
            return Visit(target.path, [by.write(target, data, [f"Cookie: {long}", f"X: {long}"])], due=False)


CODINGS = ("latin-1", "utf-16", "utf-32", "utf-7", "cp500", "utf-8-sig")
BYTES = (
    b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\x00", b"\\ud800", b"\\u0000", b"\xf5\x80\x80\x80", b"\\x", b"\x1b[2J", b"\\ud83d",
)  # fmt: skip
TAILS = (
    "%ff", "%00", "%2e%2e/%2e%2e/etc/passwd", "%ed%a0%80", "?after=--5", "?after=" + "9" * 5000, "?api_key=%00", "\xff",
)  # fmt: skip
HEADERS = ("X: \udcff", "X: a\x00b", "Cookie: \udced\udca0\udc80", "Authorization: Bearer \udcff" * 9)


@add("wrong encodings")
def encode_wrongly(by: Attacker) -> Visit:
    match by.draw.randrange(4):
        case 0:
            target, body = by.choose_with_body()
            coding = by.draw.choice(CODINGS)
            data = json.dumps(body | {"q": "é"}, ensure_ascii=False).encode(coding)
            return Visit(target.path, [by.write(target, data, kind=f"application/json; charset={coding}")])
        case 1:
            target, data = replace_field(by, b'"a' + by.draw.choice(BYTES) * by.draw.choice([1, 5000]) + b'"')
            return Visit(target.path, [by.write(target, data)])
        case 2:
            target = by.choose()
            changed = Target(target.method, target.path + by.draw.choice(TAILS), target.bodies)
            return Visit(target.path, [by.write(changed)], due=False)
        case _:
            target = by.choose()
            return Visit(target.path, [by.write(target, b"{}", [by.draw.choice(HEADERS)])], due=False)


NUMBERS = (
    b"9" * 5000, b"1e999", b"-1e-999", b"NaN", b"Infinity", b"1.8446744073709552e19", b"0.1e-400", b"-0", b"1_0", b"01",
)  # fmt: skip


@add("numbers")
def send_numbers(by: Attacker) -> Visit:
    number = by.draw.choice(NUMBERS)
    target, data = replace_field(by, by.draw.choice([number, b'"&#' + number + b';"', b"[" + number + b"]"]))
    if target.path == "/translate":
        data = data.removesuffix(b"}") + b', "format": "html"}'
    return Visit(target.path, [by.write(target, data)])


@add("forms", 4)
def send_forms(by: Attacker) -> Visit:
    target = by.draw.choice([each for each in by.targets if each.forms])
    if by.draw.random() < 0.3:
        data = b"&".join([b"q=%61"] * by.draw.choice([5, 100_000]))
        return Visit(target.path, [by.write(target, data, kind="application/x-www-form-urlencoded")])
    name = by.draw.choice(["x", "y", "x" * 5000, ""])
    part = b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\na\r\n'
    file = b'--x\r\nContent-Disposition: form-data; name="image"; filename="../a"\r\nContent-Type: image/png\r\n\r\n\x89PNG\r\n'
    header = b"--x\r\n" + b"A" * 1_000_000 + b": b\r\n\r\na\r\n"
    unit = by.draw.choice([part, file, header])
    data = fill(b"", unit, b"", by.draw.choice([len(unit), max(100_000, len(unit)), BELOW]))
    data += by.draw.choice([b"--x--\r\n", b"", b"--x", b"\r\n--"])
    return Visit(target.path, [by.write(target, data, kind=f"multipart/form-data; boundary={name}")])


@add("costly requests", 4)
def ask_much(by: Attacker) -> Visit:
    """All that the limits allow, and what grows faster than they do."""
    path, body = by.draw.choice(list(_list_costly()))
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
    head += "".join(f"Authorization: Bearer {key}\r\n" for key in by.keys) + f"Content-Length: {len(body)}\r\n\r\n"
    return Visit(path, [head.encode() + body])


@cache
def _list_costly() -> tuple[tuple[str, bytes], ...]:
    masks = "a " + " dog ".join(f"<extra_id_{i}>" for i in range(5)) + " cat"
    most = {"beam": 16, "n_best": 16, "max_length": 2048, "max_extra": 2048}
    long: list[tuple[str, dict[str, object]]] = [
        ("/score", {"model": "span", "inputs": [masks], "outputs": ["a" + " dog" * 120 + " sun"]}),
        ("/score", {"model": "lm", "inputs": ["a" * 40_000], "outputs": ["a" * 40_000]}),
        ("/score", {"model": "translate", "inputs": ["a"] * 60, "outputs": ["a" * 1500] * 60}),
        ("/attention", {"model": "translate", "text": "a" * 40_000}),
        ("/attention", {"model": "translate", "text": "a" * 60, "output": "a" * 5000}),
        ("/attention", {"model": "mlm", "text": "a " * 40_000}),
        ("/run", {"model": "translate", "inputs": ["abc" * 50] * 16, "options": most}),
        ("/run", {"model": "translate", "inputs": ["abc" * 50] * 16, "glossary": {"a" * i: "b" for i in range(1, 40)}}),
        ("/run", {"model": "lm", "inputs": ["a"] * 64, "options": {"sample": True, "max_length": 2048, "top_k": 1 << 30}}),
        ("/run", {"model": "span", "inputs": [" <extra_id_0>" * 3000]}),
        ("/run", {"model": "music", "inputs": ["S:C5 A:G4 T:E4 B:C3 " * 4000]}),
        ("/run", {"model": "frames", "inputs": ["[[60]," * 3000 + "[60]" + "]" * 3000]}),
        ("/run", {"model": "recommend", "inputs": ["; ".join(["1"] * 30_000)]}),
        ("/run", {"model": "babi", "inputs": ["Mary left. " * 9000 + "Where is Mary?"]}),
        ("/fill", {"text": "<mask> " * 10_000, "n_best": 16}),
        ("/tag", {"text": ["a " * 700] * 64}),
        ("/classify", {"text": ["a\tb " * 100] * 128}),
        ("/image", {"image": base64.b64encode(make_picture(20_000)).decode()}),
        ("/detect", {"q": ["aé"] * 128}),
        ("/translate", {"q": "<" * 90_000, "target": "target", "format": "html"}),
        ("/translate", {"q": "a\n" * 45_000, "target": "target", "alternatives": 15}),
        ("/v1/completions", {"model": "lm", "prompt": ["a"] * 64, "n": 16, "max_tokens": 2048, "stream": True}),
        ("/v1/completions", {"model": "lm", "prompt": "a" * 90_000, "max_tokens": 2048, "stop": ["a" * 5000] * 4}),
        ("/v1/chat/completions", {"model": "chat", "messages": [{"role": "user", "content": "a" * 700}] * 128}),
        ("/v1/chat/completions", {"model": "chat", "messages": [{"role": "user", "content": "<|im_start|>" * 8000}]}),
        ("/v1/embeddings", {"model": "embed", "input": ["a b " * 190] * 128}),
    ]  # fmt: skip
    return tuple((path, json.dumps(body).encode()) for path, body in long)


def make_picture(side: int) -> bytes:
    """A PNG file of few bytes and many pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    packer = zlib.compressobj(9)
    rows: Iterable[bytes] = (bytes(side // 8 + 1) for _ in range(side))
    data = b"".join(packer.compress(row) for row in rows) + packer.flush()
    head = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
