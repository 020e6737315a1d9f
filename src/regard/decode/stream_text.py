"""Text pieces from a stream of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator


def stream_text(tokens: Iterable[int], decode: Callable[[list[int]], str]) -> Iterator[str]:
    """Yield the text of tokens in pieces that together are `decode` of all of them.

    The last token may change the text before it (a space that punctuation swallows, a character of several bytes), so a
    piece is yielded when the next token has left it as it is.
    """
    ids: list[int] = []
    sent, before = 0, ""
    for token in tokens:
        ids.append(token)
        now = decode(ids)
        stable = _count_common(before.rstrip("\ufffd").rstrip(), now)
        if stable > sent:
            yield now[sent:stable]
            sent = stable
        before = now
    if len(before) > sent:
        yield before[sent:]


def _count_common(a: str, b: str) -> int:
    """The number of characters with which both texts begin."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
