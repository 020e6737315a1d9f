"""Detection of a table's header, and of the columns it names.

A table with the names that a task expects needs no more. Otherwise the first row decides: a cell that no column would be
called (a sentence, a number, a label that comes again below) makes it data, words that columns are called make it a header,
and so do numbers or sentences below single words. Every guess that could be wrong is reported in one line, with the setting
that changes it; columns that belong to another task are refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median

from regard.errors import DataError, offer

Columns = tuple[int | str, ...]
SAMPLE = 100
"""Number of rows that the first one is compared with."""
NAME = re.compile(r"[^\W\d][\w .:/#()-]{0,39}")
"""Pattern of column names."""
NUMBER = re.compile(r"[-+]?[\d.,]*\d")
MIN_WORDS = 3
"""Words of a typical text; a column has a name of fewer."""
SYNONYMS = {
    "source": ("src", "input", "text", "article", "document"),
    "target": ("tgt", "trg", "output", "translation", "summary", "highlights"),
    "text": ("sentence", "sentence1", "premise", "review", "document", "words", "tokens"),
    "other": ("sentence2", "hypothesis"),
    "label": ("class", "category", "sentiment"),
    "labels": ("tags", "label", "tag"),
}
"""Other words for the names that tasks expect."""
LABELS = {"label", "labels", "class", "category", "sentiment", "intent", "tag", "tags", "rating", "stars", "score"}
GENERAL = {"id", "index", "question", "answer", "summary", "article", "title", "body", "comment", "reference", "prompt",
           "completion", "query", "word", "lang", "language", "split", "date", "name", "url"}  # fmt: skip


@dataclass(frozen=True)
class TableColumns:
    """Columns to read: those called `names`, or the given `columns`; and whether there is a header, if that is known."""

    names: tuple[str, ...]
    columns: Columns | None = None
    header: bool | None = None


@dataclass(frozen=True)
class ReadTable:
    """The places of the columns, from 0; whether the first row is a header; and what should be said about that."""

    places: list[int]
    header: bool
    note: str = ""


def read_header(path: str, wanted: TableColumns, first: list[str], below: Sequence[list[str]]) -> ReadTable:
    """Decide how a table is read, from its first row and some rows below it."""
    if wanted.columns is not None and any(isinstance(column, str) for column in wanted.columns):
        if wanted.header is False:
            raise DataError(f"{path}: columns {list(wanted.columns)} are names, which need a header; set header: true")
        return ReadTable([_find(path, column, first) for column in wanted.columns], True)
    lowered = [cell.strip().lower() for cell in first]
    if wanted.columns is None and wanted.header is not False:
        if all(name in lowered for name in wanted.names):
            return ReadTable([lowered.index(name) for name in wanted.names], True)
        if (places := _find_synonyms(wanted.names, lowered)) is not None:
            return ReadTable(places, True, _say_header(path, wanted.names, [first[place] for place in places]))
    if wanted.columns is not None:
        places = [_find(path, column, first) for column in wanted.columns]
    else:
        places = list(range(len(wanted.names)))
    header, sure = (wanted.header, True) if wanted.header is not None else is_header(first, below)
    if wanted.columns is None and len(first) != len(wanted.names):
        has = f", but {_join([repr(cell) for cell in first])}" if header else ""
        raise DataError(
            f"{path} has {len(first)} columns and no header with {_join(wanted.names)}{has}; set columns, by name or by "
            "position from 1"
        )
    chosen = [first[place] for place in places]
    if header and wanted.columns is None:
        _check_fit(path, wanted.names, chosen)
    if wanted.header is not None or (sure and not header):
        return ReadTable(places, header)
    if header:
        return ReadTable(places, True, _say_header(path, wanted.names, chosen))
    return ReadTable(
        places,
        False,
        f"{path}: the first line ({', '.join(chosen)}) is read as data; if it is a header, set header: true",
    )


def is_header(first: Sequence[str], below: Sequence[Sequence[str]]) -> tuple[bool, bool]:
    """Tell whether a first row is a header, and whether that is certain."""
    columns = [[row[i].strip() for row in below if len(row) == len(first)] for i in range(len(first))]
    numbers = [bool(column) and all(NUMBER.fullmatch(cell) for cell in column) for column in columns]
    cells = [cell.strip() for cell, number in zip(first, numbers, strict=True) if cell.strip() or not number]
    if not cells or not all(NAME.fullmatch(cell) and len(cell.split()) < MIN_WORDS for cell in cells):
        return False, True
    if all(cell.lower() in _known_words() for cell in cells):
        return True, True
    if any(cell.strip() in column for cell, column in zip(first, columns, strict=True)):
        return False, True
    if any(numbers):
        return True, True
    texts = any(column and median(len(cell.split()) for cell in column) >= MIN_WORDS for column in columns)
    return texts, False


@cache
def _known_words() -> frozenset[str]:
    """Names of columns: our own names, other words for them, and languages."""
    from babel import Locale

    languages = {word.lower() for pair in Locale("en").languages.items() for word in pair}
    own = {word for name, others in SYNONYMS.items() for word in (name, *others)}
    return frozenset(own | LABELS | GENERAL | languages)


def _find_synonyms(names: Sequence[str], lowered: Sequence[str]) -> list[int] | None:
    """The places of columns with other words for the names; None unless each has exactly one."""
    found = [[i for i, cell in enumerate(lowered) if cell in (name, *SYNONYMS.get(name, ()))] for name in names]
    return [places[0] for places in found] if all(len(places) == 1 for places in found) else None


def _check_fit(path: str, names: Sequence[str], header: Sequence[str]) -> None:
    """Refuse columns that belong to another task."""
    words = [cell.strip().lower() for cell in header]
    has = f"{path} has the columns {_join([repr(cell) for cell in header])}"
    instead = f"or set columns: [{', '.join(header)}] to use them as {_join(names)}"
    if "source" in names and LABELS.intersection(words):
        raise DataError(
            f"{has}: labeled texts, not pairs of texts; use a task that learns labels (classify), {instead}"
        )
    if "source" not in names and words[-1] not in LABELS and words[-1] in _known_words():
        raise DataError(
            f"{has}: no {names[-1]} among them; use a task that learns from pairs (translate, embed), {instead}"
        )


def _say_header(path: str, names: Sequence[str], chosen: Sequence[str]) -> str:
    pairs = _join([f"{cell} is the {name}" for cell, name in zip(chosen, names, strict=True)])
    return f"{path}: the first line is read as a header, {pairs}; set columns to choose others, header: false if it is data"


def _find(path: str, column: int | str, first: Sequence[str]) -> int:
    """The place of a column, from 0, given by its name or its position from 1."""
    if isinstance(column, str):
        if column not in first:
            raise DataError(f"{path} has no column {column!r}{offer(column, first)}")
        return first.index(column)
    if column > len(first):
        raise DataError(f"{path} has no column {column}; its first line has {len(first)}")
    return column - 1


def _join(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
