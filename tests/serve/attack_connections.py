"""Attacks by connections and by HTTP: slow, many, half-closed, wrongly framed, with wrong methods and keys."""

from __future__ import annotations

import json
from urllib.parse import quote

from tests.serve.attacks import Attacker, End, Target, Visit, add

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW", "get", "G\x00T")


@add("slow headers", 150)
def send_slow_headers(by: Attacker) -> Visit:
    head = by.write(by.choose(), headers=[f"X-{i}: {i}" for i in range(40)])
    if by.draw.random() < 0.5:  # byte by byte, or the first line and then nothing
        return Visit("", [bytes([each]) for each in head], End.HOLD, by.draw.choice([0.2, 1.0]), due=False)
    return Visit("", [head[: by.draw.randrange(1, len(head) - 4)]], End.HOLD, due=False)


@add("slow bodies", 100)
def send_slow_bodies(by: Attacker) -> Visit:
    target, body = by.choose_with_body()
    data = json.dumps(body).encode()
    head = by.write(target, length=len(data) + by.draw.choice([0, 1, 4000]))
    if by.draw.random() < 0.5:
        head = by.write(target, headers=["Transfer-Encoding: chunked"]).replace(b"Content-Length: 0\r\n", b"")
        data = b"".join(b"1\r\n%c\r\n" % each for each in data)
    size = by.draw.choice([1, 6])
    pieces = [data[i : i + size] for i in range(0, len(data), size)]
    return Visit(target.path, [head, *pieces], End.HOLD, by.draw.choice([0.1, 1.0]), due=False)


@add("idle connections", 200)
def send_nothing(by: Attacker) -> Visit:
    return Visit("", by.draw.choice([[], [b"G"], [b"GET /healthz HTTP/1.1\r\n"]]), End.HOLD, due=False)


@add("flood of connections", 700)
def flood(by: Attacker) -> Visit:
    """More than a server has descriptors for, if it may open 512 files."""
    return Visit("", [b"GET /healthz HTTP/1.1\r\nHost: "], End.HOLD, due=False)


@add("short connections", 16)
def connect_and_leave(by: Attacker) -> Visit:
    end = by.draw.choice([End.LEAVE, End.RESET])
    return Visit("", by.draw.choice([[], [b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"]]), end, due=False)


@add("half-closed")
def close_one_half(by: Attacker) -> Visit:
    target, data = by.choose(), b""
    if target.bodies:
        data = json.dumps(by.draw.choice(list(target.bodies))).encode()
    cut = by.draw.choice([0, 0, 1, len(data)])
    return Visit(target.path, [by.write(target, data[cut:], length=len(data))], End.HALF, due=False)


@add("pipelined")
def pipeline(by: Attacker) -> Visit:
    """Many requests at once; sometimes nobody reads the answers."""
    count, target, data = by.draw.choice([10, 200]), by.choose(), b""
    if target.bodies and by.draw.random() < 0.3:
        data = json.dumps(by.draw.choice(list(target.bodies))).encode()
    one = by.write(target, data, last=False)
    if by.draw.random() < 0.5:
        return Visit(target.path, [one * count], End.LEAVE, due=False, stay=2.0)
    return Visit(target.path, [one * min(count, 20) + by.write(target, data)], due=False)


@add("disconnects", 16)
def leave_early(by: Attacker) -> Visit:
    """Leave at any point, or while a stream comes."""
    target, body = by.choose_with_body()
    if "stream" in body or target.path.startswith("/v1/"):
        body |= {"stream": True, "max_tokens": 2000} if target.path.startswith("/v1/c") else {"stream": True}
    whole = by.write(target, json.dumps(body).encode())
    cut = len(whole) if by.draw.random() < 0.7 else by.draw.randrange(len(whole))
    end = by.draw.choice([End.LEAVE, End.RESET])
    return Visit(target.path, [whole[:cut]], end, due=False, stay=by.draw.random() * 0.1)


CHUNKS = (b"zz\r\n", b"-1\r\n", b"fffffffffffffffff\r\n", b"5;" + b"a" * 100_000 + b"\r\n", b"5\r\nab\r\n0\r\n\r\n")


@add("wrong framing")
def frame_wrongly(by: Attacker) -> Visit:
    """Lengths, chunks and versions that are not so."""
    target, body = by.choose_with_body()
    data = json.dumps(body).encode()
    chunked = by.write(target, headers=["Transfer-Encoding: chunked"]).replace(b"Content-Length: 0\r\n", b"")
    wrong = [
        by.write(target, data, length=by.draw.choice([-1, "x", "0x10", "+5", "1, 2", "", "1" * 5000])),
        by.write(target, data, length=len(data) - 1),
        chunked + by.draw.choice(CHUNKS),
        chunked + b"1;a\r\n{\r\n1\r\n}\r\n0\r\nHost: evil\r\n\r\n",
        chunked.replace(b"chunked", by.draw.choice([b"gzip", b"chunked, chunked", b"Chunked\x0b", b"identity"])) + data,
        by.write(target, data).replace(b"HTTP/1.1", by.draw.choice([b"HTTP/0.9", b"HTTP/3.0", b"HTTP/1.1\r\n X: y", b""])),
        by.write(target, data).replace(b"\r\n", by.draw.choice([b"\n", b"\r", b"\n\n"])),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9), b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        bytes(by.draw.randrange(256) for _ in range(500)), b"\r\n" * 10_000, b"\x00" * 40_000,
    ]  # fmt: skip
    return Visit(target.path, [by.draw.choice(wrong)], by.draw.choice([End.HALF, End.HOLD]), due=False)


@add("wrong methods")
def use_wrong_methods(by: Attacker) -> Visit:
    target, method = by.choose(), by.draw.choice(METHODS)
    path = by.draw.choice(["", "*", "http://evil.example", "/", "/static/../x"])
    path = path if path.endswith(("*", "x")) else path + target.path + by.draw.choice(["", "/"])
    headers = by.draw.choice([[], ["Expect: 100-continue"], ["Upgrade: websocket", "Connection: Upgrade"]])
    sent = by.write(Target(method, path), b"{}" if by.draw.random() < 0.5 else b"", headers)
    return Visit(target.path, [sent], due=method.isupper() and method not in ("CONNECT", "HEAD"))


@add("wrong keys")
def use_wrong_keys(by: Attacker) -> Visit:
    target = by.choose()
    own = (*by.keys, "x" * 20)[0]
    key = by.draw.choice([own[:-1], own + "x", own.swapcase(), "", " ", "x" * 8000, "é" * 20, '"', "a,b", own * 2])
    body = {"api_key": by.draw.choice([key, [key], {"a": key}, None, 0]), "q": "a", "target": "target"}
    if by.draw.random() < 0.5:
        target = Target(target.method, f"{target.path}?api_key={quote(key)}", target.bodies)
        return Visit(target.path, [by.write(target, json.dumps(body).encode(), keyed=False)])
    header = by.draw.choice(["Authorization: Bearer ", "Authorization: ", "X-Api-Key: "]) + key
    return Visit(target.path, [by.write(target, json.dumps(body).encode(), [header], keyed=False)], due=False)


@add("changed at random")
def send_prepared(by: Attacker) -> Visit:
    """Requests of `tests.serve.fuzz`."""
    path, sent = by.draw.choice(list(by.prepared))
    return Visit(path, [sent], due=False)
