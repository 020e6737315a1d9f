"""The child process of `sandbox.py`.

It reads a tokenizer from stdin and tries it on texts that would expose a harmful one. It imports only the `tokenizers`
library, so it starts within hundredths of a second. The last line on stderr is for the parent; if a limit or an abort ends the
process before, the parent sees the exit code.
"""

from __future__ import annotations

import json
import math
import resource
import sys
from collections.abc import Iterator

_PROBE = "A probe: \u00e9 \u4e2d \U0010fffd"
_RUN = 256  # equal letters: enough to expose a pattern with exponential run time
_LETTERS = 64  # number of letters and words that are repeated
_IDS = 1000  # number of tokens that are decoded
_WAYS = ("normalizer", "pre_tokenizer", "decoder")
_GROWTH = 100  # maximum growth of a text; published tokenizers have up to 40
_TABLE = 10  # growth assumed for a character map: Unicode's longest expansion is 18


def probe_texts(said: dict[str, object]) -> Iterator[str]:
    """Yield a text of many scripts, then long runs of what the file's rules mention: that is where they would fail."""
    yield _PROBE
    words = dict.fromkeys(word for way in _WAYS for word in _collect_strings(said.get(way)))
    letters = dict.fromkeys([*" a0.\n", *(c for word in words for c in word[:_RUN])])
    for unit in [*[*letters][:_LETTERS], *[*words][:_LETTERS]]:
        run = (unit * _RUN)[:_RUN]
        yield f"{run}!"


def _collect_strings(part: object) -> Iterator[str]:
    if isinstance(part, str) and part:
        yield part
    elif isinstance(part, dict):
        for name, value in part.items():
            if name not in ("type", "precompiled_charsmap"):
                yield from _collect_strings(value)
    elif isinstance(part, list):
        for value in part:
            yield from _collect_strings(value)


def max_growth(part: object) -> float:
    """Return by how much its steps can lengthen a text: no trial would find the text that grows most."""
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
    """Set limits, then read and try the tokenizer; return 0 if nothing failed."""
    for what, most in ((resource.RLIMIT_AS, room), (resource.RLIMIT_CPU, seconds), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(what)[1]  # an existing limit may be lower
        resource.setrlimit(what, (int(most) if hard == resource.RLIM_INFINITY else min(int(most), hard),) * 2)
    sys.path[:0] = [f"{packages}/tokenizers", packages]  # its compiled module alone, if it can be imported like this
    from tokenizers import Tokenizer

    data = sys.stdin.buffer.read()
    try:
        core = Tokenizer.from_str(data.decode())
        core.no_padding()
        core.no_truncation()
        core.encode(_PROBE, _PROBE)
        said = json.loads(data)
        for text in probe_texts(said):
            core.decode(core.encode(text).ids[:_IDS])
        core.decode([*range(min(core.get_vocab_size(), _IDS))])
        for way in _WAYS:
            if (times := max_growth(said.get(way))) > _GROWTH:
                raise ValueError(f"its {way} can make a text {times:.0g} times as long; the limit is {_GROWTH}")
    except BaseException as error:  # a panic of the library is not an Exception
        first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        print(json.dumps(first[:300]), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
