"""Tokens of Python: where they stand, which pieces they are made of, and where a line can be completed."""

from __future__ import annotations

import inspect
import io
import keyword
import re
import textwrap
import tokenize

import numpy as np
import pytest

from regard.data.python_tokens import cover_tokens, find_line_cuts, find_tokens

SAMPLE = 'def f(x):\n    """Doc\n    of two lines."""\n    return x + 1  # é\n'


def test_tokens_have_their_text() -> None:
    found = [SAMPLE[a:b] for a, b in find_tokens(SAMPLE)]
    assert found[:9] == ["def", "f", "(", "x", ")", ":", "\n", "    ", '"""Doc\n    of two lines."""']
    assert found[-6:] == ["return", "x", "+", "1", "# é", "\n"]


@pytest.mark.parametrize("module", [inspect, keyword, textwrap], ids=lambda module: module.__name__)
def test_every_token_of_a_module_is_where_tokenize_says(module: object) -> None:
    text = inspect.getsource(module)  # type: ignore[arg-type]
    lines = text.splitlines(keepends=True)
    spans = find_tokens(text)
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.string]
    assert len(spans) == len(tokens)
    assert (spans[1:, 0] >= spans[:-1, 1]).all(), "in order, and none in another"
    for (start, stop), token in zip(spans.tolist(), tokens, strict=True):
        assert "".join(lines[: token.start[0] - 1]) + lines[token.start[0] - 1][: token.start[1]] == text[:start]
        if token.start[0] == token.end[0]:
            assert stop - start == token.end[1] - token.start[1]


def test_a_text_that_is_not_python_has_words() -> None:
    for text in ("x = '''never closed", "def f(:\n\n    (", "if x:\n  a\n b\n"):
        assert [text[a:b] for a, b in find_tokens(text)] == re.findall(r"\w+|[^\w\s]", text)
    assert find_tokens("").shape == (0, 2)


def test_the_end_of_a_file_without_a_line_end() -> None:
    assert ["a = 1"[a:b] for a, b in find_tokens("a = 1")] == ["a", "=", "1"]


def test_a_token_has_every_piece_with_one_of_its_characters() -> None:
    tokens = np.array([(0, 3), (3, 4), (5, 9)])  # foo ( name
    pieces = [(0, 2), (2, 4), (4, 7), (7, 8), (8, 9), (9, 11)]  # fo o( ␣na m e …
    assert cover_tokens(tokens, pieces).tolist() == [[0, 2], [1, 2], [2, 5]]
    assert cover_tokens(tokens[:0], pieces).shape == cover_tokens(tokens, []).shape == (0, 2)
    assert cover_tokens(np.array([(0, 1)]), [(0, 1)] * 3).tolist() == [[0, 3]], "a character of three bytes"


def test_a_line_is_completed_after_a_token_that_something_follows() -> None:
    cuts = find_line_cuts(SAMPLE, find_tokens(SAMPLE))
    assert [(line, SAMPLE[:place].rpartition("\n")[2], SAMPLE[place:end]) for line, place, end in cuts] == [
        (1, "def", " f(x):"),
        (1, "def f", "(x):"),
        (1, "def f(", "x):"),
        (1, "def f(x", "):"),
        (1, "def f(x)", ":"),
        (4, "    return", " x + 1  # é"),
        (4, "    return x", " + 1  # é"),
        (4, "    return x +", " 1  # é"),
        (4, "    return x + 1", "  # é"),
    ]
