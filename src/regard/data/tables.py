"""Columns of a table in a file: TSV, CSV or JSON lines, each also gzipped, row by row and never more than one of them."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from regard.data.text_files import Fault, lines, unended
from regard.errors import DataError, offer

Row = tuple[int, tuple[str, ...]]
"""A line's number, and what stands in the columns asked for: a source and its target."""
Columns = tuple[int | str, ...]
Complain = Callable[[Fault], None]


def read_columns(
    path: str, names: Sequence[str], columns: Columns | None, complain: Complain, longest: int | None = None
) -> Iterator[Row]:
    """Columns of a table: those named or numbered, else those called `names`, else all where there are as many.

    What is wrong with a row goes to `complain`; if it returns, the row is left out. So is a line of more than `longest`
    bytes.
    """
    if file_kind(path) not in READERS:
        raise DataError(f"{path} should be a table: {', '.join(READERS)} (each may end in .gz)")
    return READERS[file_kind(path)](path, names, columns, complain, longest)


def is_table(path: str) -> bool:
    """Whether a file holds columns, by the end of its name."""
    return file_kind(path) in READERS


def file_kind(path: str) -> str:
    """How a file's name ends, packed or not."""
    return Path(path.lower().removesuffix(".gz")).suffix


def _tsv(
    path: str, names: Sequence[str], columns: Columns | None, complain: Complain, longest: int | None
) -> Iterator[Row]:
    """Tabs separate, and nothing is quoted: a quotation mark is a character of the text."""
    rows = (text if isinstance(text, Fault) else unended(text).split("\t") for text in lines(path, longest))
    return _columns(path, names, columns, enumerate(rows, 1), complain)


def _csv(
    path: str, names: Sequence[str], columns: Columns | None, complain: Complain, longest: int | None
) -> Iterator[Row]:
    """Commas separate; a field in quotation marks may hold commas, doubled quotation marks and line ends.

    A fault in a line is one of its whole row. After a line that is too long to be read nobody knows where a row begins.
    """
    faults: list[Fault] = []

    def texts() -> Iterator[str]:
        for text in lines(path, longest):
            if isinstance(text, str):
                yield text
            elif text.text is None:
                raise DataError(f"{text.said}; mend it, for where the next row begins cannot be known")
            else:
                faults.append(text)
                yield text.text

    def rows() -> Iterator[tuple[int, list[str] | Fault]]:
        reader, line = csv.reader(texts(), strict=True), 1
        try:
            for cells in reader:
                yield line, faults[0] if faults else cells
                faults.clear()
                line = reader.line_num + 1
        except csv.Error as error:
            fault = str(error).partition(" - ")[0]  # what follows is advice to programmers
            raise DataError(f"{path}, line {line}: not CSV: {fault}") from None

    return _columns(path, names, columns, rows(), complain)


def _jsonl(
    path: str, names: Sequence[str], columns: Columns | None, complain: Complain, longest: int | None
) -> Iterator[Row]:
    """One object a line; the texts are values of its keys."""
    keys = columns or tuple(names)
    wanted = f"should be an object with texts {_and([repr(k) for k in keys])}"
    for line, text in enumerate(lines(path, longest), 1):
        if isinstance(text, Fault):
            complain(text)
            continue
        text, where = unended(text), f"{path}, line {line}"
        try:
            entry = json.loads(text)
        except (ValueError, RecursionError) as error:
            complain(Fault("not JSON", f"{where}: not JSON: {error}"))
            continue
        found: list[Any] = [entry.get(key) for key in keys] if isinstance(entry, dict) else []
        if not found or not all(isinstance(value, str) for value in found):
            complain(Fault("other JSON", f"{where}: {wanted}, got {text[:80]}"))
        elif "\\u" in text and any(UNUSABLE.search(value) for value in found):
            complain(Fault("a NUL or half a character", f"{where}: a text holds a NUL or half a surrogate pair"))
        else:
            yield line, tuple(found)


READERS: dict[str, Callable[[str, Sequence[str], Columns | None, Complain, int | None], Iterator[Row]]] = {
    ".tsv": _tsv,
    ".csv": _csv,
    ".jsonl": _jsonl,
}
"""How to read a file that holds all columns, by the end of its name."""
UNUSABLE = re.compile(r"[\x00\ud800-\udfff]")
"""What an escape in JSON can write and text in UTF-8 should or can not hold."""


def _columns(
    path: str,
    names: Sequence[str],
    columns: Columns | None,
    rows: Iterator[tuple[int, list[str] | Fault]],
    complain: Complain,
) -> Iterator[Row]:
    """The wanted columns; every row should have as many as the first, which must be sound: it may be the header."""
    start, first = next(rows)
    if isinstance(first, Fault):
        raise DataError(f"{first.said}; mend it, for the first line says what the columns are")
    places, named = _places(path, names, columns, first)
    for line, cells in rows if named else chain([(start, first)], rows):
        if isinstance(cells, Fault):
            complain(cells)
        elif len(cells) == len(first):
            yield line, tuple(cells[place] for place in places)
        else:
            said = f"{path}, line {line}: {len(cells)} columns, the first line has {len(first)}"
            complain(Fault("another number of columns", said))


def _places(path: str, names: Sequence[str], columns: Columns | None, first: list[str]) -> tuple[list[int], bool]:
    """Where the wanted columns stand in a row, counted from 0, and whether the first row is a header."""
    if columns is None:
        lowered = [cell.strip().lower() for cell in first]
        if all(name in lowered for name in names):
            return [lowered.index(name) for name in names], True
        if len(first) == len(names):
            return list(range(len(names))), False
        raise DataError(f"{path} has {len(first)} columns and no header with {_and(names)}; say which as columns")
    places = []
    for column in columns:
        if isinstance(column, str):
            if column not in first:
                raise DataError(f"{path} has no column {column!r}{offer(column, first)}")
            places.append(first.index(column))
        else:
            if column > len(first):
                raise DataError(f"{path} has no column {column}, its first line has {len(first)}")
            places.append(column - 1)
    return places, isinstance(columns[0], str)


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
