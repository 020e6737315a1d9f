"""What runs in the child process of `sandbox.py`: read a tokenizer from stdin, and try it on texts that would hurt a bad one.

It imports the `tokenizers` library and nothing of ours, so that it begins within hundredths of a second. The last line on
stderr is for the parent; what ends the process before it can write one, a bound or an abort, the parent sees for itself.
"""

from __future__ import annotations

import json
import math
import resource
import sys
from collections.abc import Iterator
from typing import Any

_PROBE = "A probe: \u00e9 \u4e2d \U0010fffd"
_RUN = 256  # letters alike: enough for a pattern whose time grows exponentially to be found out
_LETTERS = 64  # of which there are runs, and words that are repeated
_IDS = 1000  # tokens that are decoded
_WAYS = ("normalizer", "pre_tokenizer", "decoder")
_GROWTH = 100  # times a text may become longer; the published ones have up to 40
_TABLE = 10  # that a table of characters counts for: the longest in Unicode's writes 18 for one


def probe_texts(data: bytes) -> Iterator[str]:
    """A text of many scripts; then long runs of what the file's own rules speak of, for there they would go wrong."""
    yield _PROBE
    said = json.loads(data)
    words = dict.fromkeys(word for way in _WAYS for word in _collect_strings(said.get(way)))
    letters = dict.fromkeys([*" a0.\n", *(c for word in words for c in word[:_RUN])])
    for unit in [*[*letters][:_LETTERS], *[*words][:_LETTERS]]:
        run = (unit * _RUN)[:_RUN]
        yield f"{run}!"


def _collect_strings(part: Any) -> Iterator[str]:
    if isinstance(part, str) and part:
        yield part
    elif isinstance(part, dict):
        for name, value in part.items():
            if name not in ("type", "precompiled_charsmap"):
                yield from _collect_strings(value)
    elif isinstance(part, list):
        for value in part:
            yield from _collect_strings(value)


def max_growth(part: Any) -> float:
    """How many times as long its steps, one after another, could make a text: no trial finds the text that they grow on."""
    if isinstance(part, list):
        return math.prod(map(max_growth, part))
    if not isinstance(part, dict):
        return 1.0
    kind, inside = part.get("type"), math.prod(max_growth(value) for value in part.values())
    if kind == "Replace":
        pattern, content = part.get("pattern"), part.get("content")
        old = pattern.get("String") if isinstance(pattern, dict) else None
        new = len(content) if isinstance(content, str) else 0
        return inside * (max(1.0, new / len(old)) if isinstance(old, str) and old else 1.0 + new)
    if kind == "Prepend":
        return inside * (1.0 + len(str(part.get("prepend", ""))))
    return inside * (_TABLE if kind == "Precompiled" else 1.0)


def main(packages: str, room: str, seconds: str) -> int:
    """Bind ourselves, then read and try; 0 if nothing went wrong."""
    for what, most in ((resource.RLIMIT_AS, room), (resource.RLIMIT_CPU, seconds), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(what)[1]  # what binds us already may be tighter
        resource.setrlimit(what, (int(most) if hard == resource.RLIM_INFINITY else min(int(most), hard),) * 2)
    sys.path.insert(0, packages)
    from tokenizers import Tokenizer

    data = sys.stdin.buffer.read()
    try:
        core = Tokenizer.from_str(data.decode())
        core.no_padding()
        core.no_truncation()
        core.encode(_PROBE, _PROBE)
        for text in probe_texts(data):
            core.decode(core.encode(text).ids[:_IDS])
        core.decode([*range(min(core.get_vocab_size(), _IDS))])
        said = json.loads(data)
        for way in _WAYS:
            if (times := max_growth(said.get(way))) > _GROWTH:
                raise ValueError(f"its {way} could make a text {times:.0g} times as long; {_GROWTH} is the most")
    except BaseException as error:  # a panic of the library is no Exception; whatever it is, it is what we came for
        first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        print(json.dumps(first[:300]), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
