"""`regard run`: any bytes in, exactly as many lines out, in order, written as they are ready."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from regard.api import Model

CHUNK = 1024
"""Lines decoded together: enough to sort by length, few enough to see the first results soon."""


def stdin_lines() -> Iterator[str]:
    """Lines of standard input. Only \\n ends one; bytes that are not UTF-8 become U+FFFD, and that is said."""
    said = False
    for number, raw in enumerate(sys.stdin.buffer, start=1):
        line = raw.removesuffix(b"\n").removesuffix(b"\r")
        text = line.decode("utf-8", errors="replace")
        if not said and "\ufffd" in text and text.encode() != line:
            print(f"regard: line {number} is not UTF-8; its bad bytes were replaced", file=sys.stderr)
            said = True
        yield text


def run_lines(
    model: Model,
    lines: Iterable[str],
    out: TextIO,
    *,
    as_json: bool = False,
    others: Sequence[Model] = (),
    prefix: str | None = None,
    options: dict[str, Any],
) -> None:
    """Run the model over lines; an empty line gives an empty line."""
    rest = iter(lines)
    while chunk := list(islice(rest, CHUNK)):
        full = [i for i, line in enumerate(chunk) if line.strip()]
        extra = {} if prefix is None else {"prefixes": [prefix] * len(full)}
        found = model.run_all([chunk[i] for i in full], others=others, **options, **extra) if full else []
        outputs = dict(zip(full, found, strict=True))
        for i, line in enumerate(chunk):
            hypotheses = outputs.get(i, [])
            if as_json:
                rows = [{"text": h.text, "score": h.score, "log_prob": h.log_prob} for h in hypotheses]
                out.write(json.dumps({"source": line, "outputs": rows}, ensure_ascii=False) + "\n")
            else:
                out.write(_one_line(hypotheses[0].text if hypotheses else "") + "\n")
        out.flush()


def _one_line(text: str) -> str:
    """An output never breaks the count of lines."""
    return text.replace("\r", " ").replace("\n", " ")
