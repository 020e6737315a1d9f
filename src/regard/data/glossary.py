"""A glossary: terms and their required translations.

The file has a term, a tab and its translation on each line. A term is found where its words occur in a row, whatever the
spaces between them. Case matters only for terms with a capital letter. Of overlapping terms, the longest is used.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from regard.data.text_files import read_lines
from regard.errors import DataError

Words = tuple[str, ...]


class Glossary:
    """Terms and their translations; `find` returns those that the translation of a text must include."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self.entries = dict(pairs)
        self._names: dict[Words, str] = {_key(term): name for term, name in self.entries.items()}
        self._longest = max(map(len, self._names), default=0)

    @classmethod
    def load(cls, path: str | Path) -> Glossary:
        """Read a glossary from a file; blank lines are ignored."""
        seen: dict[Words, tuple[int, str]] = {}
        pairs = []
        for number, line in enumerate(read_lines(path), 1):
            if not line.strip():
                continue
            cells = [cell.strip() for cell in line.split("\t")]
            if len(cells) != 2 or not all(cells):
                raise DataError(
                    f"{path}, line {number}: should be a term, a tab and its translation, got {line[:80]!r}"
                )
            before, name = seen.setdefault(_key(cells[0]), (number, cells[1]))
            if name != cells[1]:
                raise DataError(
                    f"{path}, line {number}: {cells[0]!r} is {cells[1]!r} here, but {name!r} in line {before}; keep one"
                )
            pairs.append((cells[0], cells[1]))
        if not pairs:
            raise DataError(f"{path} has no terms; write a term, a tab and its translation on each line")
        return cls(pairs)

    @property
    def translations(self) -> list[str]:
        """All translations of terms."""
        return list(dict.fromkeys(self._names.values()))

    def find(self, text: str) -> list[str]:
        """Return the translations that the translation of a text must include, each once, in the order of the text."""
        exact = _words(text)
        folded = [word.casefold() for word in exact]
        found = []
        for start in range(len(exact)):
            for end in range(start + 1, min(start + self._longest, len(exact)) + 1):
                name = self._names.get(tuple(exact[start:end])) or self._names.get(tuple(folded[start:end]))
                if name is not None:
                    found.append((end - start, start, name))
        free, chosen = [True] * len(exact), []
        for length, start, name in sorted(found, key=lambda each: (-each[0], each[1])):
            if all(free[start : start + length]):
                free[start : start + length] = [False] * length
                chosen.append((start, name))
        return list(dict.fromkeys(name for _, name in sorted(chosen)))


def _key(term: str) -> Words:
    """Return the words to look for: unchanged if the term has a capital, else in lower case."""
    words = _words(term)
    return tuple(words if any(c.isupper() for c in term) else (word.casefold() for word in words))


def _words(text: str) -> list[str]:
    """Split a text into words: runs of letters, digits and marks; any other character except spaces is a word by itself."""
    return list(_split(unicodedata.normalize("NFC", text)))


def _split(text: str) -> Iterator[str]:
    for kind, run in groupby(text, _kind):
        if kind == "word":
            yield "".join(run)
        elif kind == "mark":
            yield from run


def _kind(letter: str) -> str:
    if unicodedata.category(letter)[0] in "LMN":
        return "word"
    return "space" if letter.isspace() else "mark"
