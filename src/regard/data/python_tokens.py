"""Tokens of Python source, as `tokenize` finds them.

A model predicts subword pieces; accuracy is counted per token of Python: names, numbers, strings, operators, comments, line
ends, indentation. A token is right if all pieces that overlap it are right.

    source    total = total + 1⏎
    tokens    └───┘ ┘ └───┘ ┘ ┘┘          six, the line end among them
    pieces    tot al␣ =␣ …
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

WORDS = re.compile(r"\w+|[^\w\s]")
Spans = NDArray[np.int64]
"""Start and end of each, (k, 2)."""


def find_tokens(text: str) -> Spans:
    """Return the place of each token with text of its own, in characters.

    In a text that is not Python, tokens are words and single other characters.
    """
    begin = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
    spans = list[tuple[int, int]]()
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.string:  # without: the end of a block, and of the file
                (row, column), (last_row, last_column) = token.start, token.end
                spans.append((begin[row - 1] + column, begin[last_row - 1] + last_column))
    except (tokenize.TokenError, SyntaxError, IndexError):
        spans = [match.span() for match in WORDS.finditer(text)]
    found = np.array(spans, np.int64).reshape(-1, 2)
    return found[(found[:, 0] < found[:, 1]) & (found[:, 1] <= len(text))]


def cover_tokens(tokens: Spans, pieces: Sequence[tuple[int, int]]) -> Spans:
    """The pieces that overlap each token: the first, and the one after the last."""
    if not len(tokens) or not pieces:
        return np.empty((0, 2), np.int64)
    starts, ends = np.array(pieces, np.int64).T
    first, last = np.searchsorted(ends, tokens[:, 0], "right"), np.searchsorted(starts, tokens[:, 1], "left")
    return np.stack([first, last], 1)[first < last]


def find_line_cuts(text: str, tokens: Spans) -> list[tuple[int, int, int]]:
    """The places after a token from which the rest of its line can be completed: line, place, end of the line.

    What is left of the line is more than spaces, and the token is on that line alone.
    """
    out, line, end = list[tuple[int, int, int]](), 0, -1
    for start, stop in tokens.tolist():
        while end < start:
            line, end = line + 1, text.find("\n", end + 1)
            end = len(text) if end < 0 else end
        last = end - text.endswith("\r", start, end)
        if stop < last and not text[start:stop].isspace() and text[stop:last].strip():
            out.append((line, stop, last))
    return out
