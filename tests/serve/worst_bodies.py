"""The most expensive bodies, and how long they hold the loop.

    python -m tests.serve.worst_bodies [NAME …]

sends each body in four sizes, up to the largest that is allowed, and prints for how long the loop answered nobody else, and the
exponent of the last doubling: 1 is linear. In the suite they are only refused.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from regard.serve.app import build_app
from regard.serve.server_settings import Limits, ServerSettings
from tests.serve.in_process import FuzzRequest, LocalServer

LARGEST = Limits().body
JSON, FORM, PARTS = "application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"
FIELD = b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\n'
MODEL = {
    "name": "a", "uses": ["translate", "complete", "chat", "embed", "score", "attention", "fill", "image"],
    "languages": {"sources": ["source"], "targets": ["target"], "tagged": False},
}  # fmt: skip


@dataclass(frozen=True)
class WorstBody:
    """A body of any size: a beginning, a part as often as it fits, an end."""

    path: str
    start: bytes
    part: bytes
    end: bytes = b""
    kind: str = JSON

    def make(self, size: int) -> FuzzRequest:
        """The request with a body of this many bytes, or a few less."""
        count = (size - len(self.start) - len(self.end)) // len(self.part)
        content = self.start + self.part * count + self.end
        return FuzzRequest("POST", self.path, {"content-type": self.kind.encode()}, content)


BODIES = {
    "a string without an end": WorstBody("/translate", b'{"a": "', rb"\""),
    "a string of quotes": WorstBody("/translate", b'{"q": "', rb"\"", b'"}'),
    "a string of backslashes": WorstBody("/translate", b'{"q": "', b"\\"),
    "quotes": WorstBody("/translate", b"{", b'"'),
    "numbers": WorstBody("/run", b'{"inputs": [', b"1,", b"1]}"),
    "floats": WorstBody("/run", b'{"inputs": [', b"1e1,", b"1]}"),
    "empty lists": WorstBody("/run", b'{"inputs": [', b"[],", b"1]}"),
    "empty objects": WorstBody("/run", b'{"inputs": [', b"{},", b"1]}"),
    "empty strings": WorstBody("/run", b'{"inputs": [', b'"",', b'""]}'),
    "words": WorstBody("/run", b'{"inputs": [', b'"word",', b'""]}'),
    "brackets": WorstBody("/run", b"", b"["),
    "closed brackets": WorstBody("/run", b"{", b"]"),
    "keys": WorstBody("/run", b"{", b'"a": 1, ', b'"a": 1}'),
    "outputs": WorstBody("/score", b'{"inputs": "a", "outputs": [', b"1,", b"1]}"),
    "texts to fill": WorstBody("/fill", b'{"text": [', b"1,", b"1]}"),
    "images": WorstBody("/image", b'{"image": [', b"1,", b"1]}"),
    "prompts": WorstBody("/v1/completions", b'{"model": "a", "prompt": [', b"1,", b"1]}"),
    "stops": WorstBody("/v1/completions", b'{"model": "a", "stop": [', b"1,", b"1]}"),
    "embedded": WorstBody("/v1/embeddings", b'{"model": "a", "input": [', b"1,", b"1]}"),
    "messages": WorstBody("/v1/chat/completions", b'{"model": "a", "messages": [', b"1,", b"1]}"),
    "parts": WorstBody(
        "/v1/chat/completions", b'{"model": "a", "messages": [{"role": "user", "content": [', b"1,", b"1]}]}"
    ),
    "tools": WorstBody("/v1/chat/completions", b'{"model": "a", "messages": [], "tools": [', b"1,", b"1]}"),
    "biases": WorstBody("/v1/completions", b'{"model": "a", "logit_bias": {', b'"1": 1, ', b'"1": 1}}'),
    "terms": WorstBody("/run", b'{"inputs": "a", "glossary": {', b'"1": 1, ', b'"1": 1}}'),
    "a long text": WorstBody("/translate", b'{"target": "target", "q": "', b"a", b'"}'),
    "a long name": WorstBody("/v1/completions", b'{"model": "', rb"\u0001", b'"}'),
    "a long key": WorstBody("/run", b'{"', b"a\x7f", b'": 1}'),
    "digits": WorstBody("/run", b'{"inputs": ', b"1", b"}"),
    "long numbers": WorstBody("/run", b'{"inputs": [', b"1" * 4000 + b",", b"1]}"),
    "a fraction": WorstBody("/run", b'{"inputs": 1.', b"1", b"}"),
    "blanks": WorstBody("/run", b"", b" "),
    "a form of escapes": WorstBody("/translate", b"target=a&q=", b"%41", kind=FORM),
    "a form of broken escapes": WorstBody("/translate", b"target=a&q=", b"%zz", kind=FORM),
    "a form of letters and escapes": WorstBody("/translate", b"target=a&q=", b"%41a", kind=FORM),
    "a form of fields": WorstBody("/translate", b"", b"q=&", kind=FORM),
    "a part of near boundaries": WorstBody("/translate", FIELD, b"\r\n--", kind=PARTS),
    "a part of line ends": WorstBody("/translate", FIELD, b"\r", kind=PARTS),
    "fields in parts": WorstBody("/translate", b"", FIELD + b"a\r\n", b"--x--", kind=PARTS),
    "a long file": WorstBody("/image", FIELD.replace(b'"q"', b'"image"; filename="a"'), b"a", b"\r\n--x--", kind=PARTS),
}
"""None of them is right, or within the limits."""


async def measure_hold(server: LocalServer, request: FuzzRequest) -> tuple[int, float]:
    """The status of the answer, and the longest time in which nobody else would have had one."""
    longest, is_over = 0.0, False

    async def tick() -> None:
        nonlocal longest
        while not is_over:
            began = time.perf_counter()
            await asyncio.sleep(0)
            longest = max(longest, time.perf_counter() - began)

    ticker = asyncio.create_task(tick())
    await asyncio.sleep(0)
    try:
        status, _ = await server.send(request)
    finally:
        is_over = True
        await ticker
    return status, longest


def open_server(keys: Sequence[str] = (), limits: Limits = Limits()) -> LocalServer:
    """An application that knows a model, but has no inference process."""
    server = LocalServer(build_app(ServerSettings({"a": "nowhere"}, keys=keys, limits=limits)))
    server.context.inference.models = {"a": dict(MODEL)}
    return server


async def main(names: Sequence[str], tell: Callable[[str], None] = print) -> None:
    """Print a line for each body."""
    server = open_server()
    for name in names or BODIES:
        taken, status = [], 0
        for shift in (3, 2, 1, 0):
            request = BODIES[name].make(LARGEST >> shift)
            runs = [await measure_hold(server, request) for _ in range(3)]
            status, best = runs[0][0], min(seconds for _, seconds in runs)
            taken.append(best)
        exponent = math.log2(max(taken[3], 1e-9) / max(taken[2], 1e-9))
        times = " ".join(f"{1000 * seconds:8.1f}" for seconds in taken)
        tell(f"{name:30} {status} {times} ms, exponent {exponent:.2f}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
