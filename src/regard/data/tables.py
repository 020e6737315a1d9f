"""Columns of a table in a file: TSV, CSV or JSON lines, each also gzipped, row by row and never more than one of them."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from regard.data.text_files import BadLine, iter_lines, strip_line_end
from regard.errors import DataError, offer

Row = tuple[int, tuple[str, ...]]
"""A line's number, and what stands in the columns asked for: a source and its target."""
Columns = tuple[int | str, ...]
OnBadLine = Callable[[BadLine], None]


def read_columns(
    path: str, names: Sequence[str], columns: Columns | None, on_bad_line: OnBadLine, max_bytes: int | None = None
) -> Iterator[Row]:
    """Columns of a table: those named or numbered, else those called `names`, else all where there are as many.

    What is wrong with a row goes to `on_bad_line`; if it returns, the row is left out. So is a line of more than `max_bytes`
    bytes.
    """
    if file_kind(path) not in READERS:
        raise DataError(f"{path} should be a table: {', '.join(READERS)} (each may end in .gz)")
    return READERS[file_kind(path)](path, names, columns, on_bad_line, max_bytes)


def is_table(path: str) -> bool:
    """Whether a file holds columns, by the end of its name."""
    return file_kind(path) in READERS


def file_kind(path: str) -> str:
    """How a file's name ends, packed or not."""
    return Path(path.lower().removesuffix(".gz")).suffix


def _read_tsv(
    path: str, names: Sequence[str], columns: Columns | None, on_bad_line: OnBadLine, max_bytes: int | None
) -> Iterator[Row]:
    """Tabs separate, and nothing is quoted: a quotation mark is a character of the text."""
    rows = (
        text if isinstance(text, BadLine) else strip_line_end(text).split("\t") for text in iter_lines(path, max_bytes)
    )
    return _select_columns(path, names, columns, enumerate(rows, 1), on_bad_line)


def _read_csv(
    path: str, names: Sequence[str], columns: Columns | None, on_bad_line: OnBadLine, max_bytes: int | None
) -> Iterator[Row]:
    """Commas separate; a field in quotation marks may hold commas, doubled quotation marks and line ends.

    A fault in a line is one of its whole row. After a line that is too long to be read nobody knows where a row begins.
    """
    faults: list[BadLine] = []

    def texts() -> Iterator[str]:
        for text in iter_lines(path, max_bytes):
            if isinstance(text, str):
                yield text
            elif text.text is None:
                raise DataError(f"{text.message}; mend it, for where the next row begins cannot be known")
            else:
                faults.append(text)
                yield text.text

    def rows() -> Iterator[tuple[int, list[str] | BadLine]]:
        reader, line = csv.reader(texts(), strict=True), 1
        try:
            for cells in reader:
                yield line, faults[0] if faults else cells
                faults.clear()
                line = reader.line_num + 1
        except csv.Error as error:
            fault = str(error).partition(" - ")[0]  # what follows is advice to programmers
            raise DataError(f"{path}, line {line}: not CSV: {fault}") from None

    return _select_columns(path, names, columns, rows(), on_bad_line)


def _read_jsonl(
    path: str, names: Sequence[str], columns: Columns | None, on_bad_line: OnBadLine, max_bytes: int | None
) -> Iterator[Row]:
    """One object a line; the texts are values of its keys."""
    keys = columns or tuple(names)
    wanted = f"should be an object with texts {_join_words([repr(k) for k in keys])}"
    for line, text in enumerate(iter_lines(path, max_bytes), 1):
        if isinstance(text, BadLine):
            on_bad_line(text)
            continue
        text, where = strip_line_end(text), f"{path}, line {line}"
        try:
            entry = json.loads(text)
        except (ValueError, RecursionError) as error:
            on_bad_line(BadLine("not JSON", f"{where}: not JSON: {error}"))
            continue
        found: list[Any] = [entry.get(key) for key in keys] if isinstance(entry, dict) else []
        if not found or not all(isinstance(value, str) for value in found):
            on_bad_line(BadLine("other JSON", f"{where}: {wanted}, got {text[:80]}"))
        elif "\\u" in text and any(UNUSABLE.search(value) for value in found):
            on_bad_line(BadLine("a NUL or half a character", f"{where}: a text holds a NUL or half a surrogate pair"))
        else:
            yield line, tuple(found)


READERS: dict[str, Callable[[str, Sequence[str], Columns | None, OnBadLine, int | None], Iterator[Row]]] = {
    ".tsv": _read_tsv,
    ".csv": _read_csv,
    ".jsonl": _read_jsonl,
}
"""How to read a file that holds all columns, by the end of its name."""
UNUSABLE = re.compile(r"[\x00\ud800-\udfff]")
"""What an escape in JSON can write and text in UTF-8 should or can not hold."""


def _select_columns(
    path: str,
    names: Sequence[str],
    columns: Columns | None,
    rows: Iterator[tuple[int, list[str] | BadLine]],
    on_bad_line: OnBadLine,
) -> Iterator[Row]:
    """The wanted columns; every row should have as many as the first, which must be sound: it may be the header."""
    start, first = next(rows)
    if isinstance(first, BadLine):
        raise DataError(f"{first.message}; mend it, for the first line says what the columns are")
    places, named = _find_columns(path, names, columns, first)
    for line, cells in rows if named else chain([(start, first)], rows):
        if isinstance(cells, BadLine):
            on_bad_line(cells)
        elif len(cells) == len(first):
            yield line, tuple(cells[place] for place in places)
        else:
            said = f"{path}, line {line}: {len(cells)} columns, the first line has {len(first)}"
            on_bad_line(BadLine("another number of columns", said))


def _find_columns(path: str, names: Sequence[str], columns: Columns | None, first: list[str]) -> tuple[list[int], bool]:
    """Where the wanted columns stand in a row, counted from 0, and whether the first row is a header."""
    if columns is None:
        lowered = [cell.strip().lower() for cell in first]
        if all(name in lowered for name in names):
            return [lowered.index(name) for name in names], True
        if len(first) == len(names):
            return list(range(len(names))), False
        raise DataError(
            f"{path} has {len(first)} columns and no header with {_join_words(names)}; say which as columns"
        )
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


def _join_words(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
