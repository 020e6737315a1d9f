"""Encode texts word by word, each word once.

The library looks for the pieces of every text anew, though most words of a corpus were seen before. If it treats each word by
itself, the tokens of a text are those of its words, and a dictionary gives them many times as fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from regard.text.long_text import Encode

MAX_CHARACTERS = 1 << 20
"""Total length of the words that are kept; then the cache starts over."""


class WordCache:
    """The tokens of words; those of new words come from `encode`."""

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._ints: dict[int, int] = {}  # one object for each token: then they stay in the processor's cache
        self._forget()

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each line."""
        if self._size > MAX_CHARACTERS:
            self._forget()
        known, rows = (
            self._known,
            [line.replace("\n", " ").split(" ") for line in lines],
        )  # another thread may forget meanwhile
        if new := [*set(chain.from_iterable(rows)).difference(known)]:
            found = self._encode(new)
            known.update(zip(new, [[self._ints.setdefault(i, i) for i in ids] for ids in found], strict=True))
            self._size += sum(map(len, new))
        return [list(chain.from_iterable(map(known.__getitem__, row))) for row in rows]

    def _forget(self) -> None:
        self._known: dict[str, list[int]] = {"": []}
        self._size = 0


def cut_at_spaces(text: str, limit: int) -> Iterator[str]:
    """Yield the pieces of a text, of about `limit` characters, with the spaces between them left out; a word stays whole."""
    start = 0
    while len(text) - start > limit:
        end = text.find(" ", start + limit)
        if end < 0:
            break
        yield text[start:end]
        start = end + 1
    yield text[start:]
