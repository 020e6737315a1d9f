"""Columns of TSV, CSV and JSON Lines files, row by row.

All may be gzipped; only one row is in memory at a time.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

from regard.data.table_header import SAMPLE, TableColumns, read_header
from regard.data.text_files import BadLine, iter_lines, strip_line_end
from regard.errors import DataError

Row = tuple[int, tuple[str, ...]]
"""The number of a line, and the requested columns: a source and its target."""
OnBadLine = Callable[[BadLine], None]
Notify = Callable[[str], None]


def read_columns(
    path: str,
    wanted: TableColumns,
    on_bad_line: OnBadLine,
    max_bytes: int | None = None,
    notify: Notify = lambda _: None,
) -> Iterator[Row]:
    """Read columns of a table: the given ones, else those with the names of the task, else all if it has as many.

    A bad row, or a line of more than `max_bytes` bytes, is passed to `on_bad_line`; if that returns, the row is skipped.
    How the first row was read is passed to `notify`, unless it is certain.
    """
    if file_kind(path) not in READERS:
        raise DataError(f"{path} should be a table: {', '.join(READERS)} (each may end in .gz)")
    return READERS[file_kind(path)](path, wanted, on_bad_line, max_bytes, notify)


def is_table(path: str) -> bool:
    """True if a file is a table, by the ending of its name."""
    return file_kind(path) in READERS


def refuse_tables(paths: Sequence[str]) -> None:
    """Raise an error for a table where plain text is read: its header, its separators and its labels are no text."""
    for path in filter(is_table, paths):
        raise DataError(
            f"{path} is a table, and this task reads plain text; save its texts as a .txt file, or use a task that reads "
            "tables (classify learns labels, translate pairs)"
        )


def file_kind(path: str) -> str:
    """Return the ending of a file name, without .gz."""
    return Path(path.lower().removesuffix(".gz")).suffix


def _read_tsv(
    path: str, wanted: TableColumns, on_bad_line: OnBadLine, max_bytes: int | None, notify: Notify
) -> Iterator[Row]:
    """Tabs separate columns; quotation marks have no meaning."""
    rows = (
        text if isinstance(text, BadLine) else strip_line_end(text).split("\t") for text in iter_lines(path, max_bytes)
    )
    return _select_columns(path, wanted, enumerate(rows, 1), on_bad_line, notify)


def _read_csv(
    path: str, wanted: TableColumns, on_bad_line: OnBadLine, max_bytes: int | None, notify: Notify
) -> Iterator[Row]:
    """Commas separate columns; a quoted field may contain commas, doubled quotation marks and line breaks.

    A bad line makes its whole row bad. After a line that is too long to be read, the start of the next row is unknown.
    """
    faults: list[BadLine] = []

    def texts() -> Iterator[str]:
        for text in iter_lines(path, max_bytes):
            if isinstance(text, str):
                yield text
            elif text.text is None:
                raise DataError(f"{text.message}; fix it, because the start of the next row is unknown")
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
            fault = str(error).partition(" - ")[0]  # the rest is advice to programmers
            raise DataError(f"{path}, line {line}: not CSV: {fault}") from None

    return _select_columns(path, wanted, rows(), on_bad_line, notify)


class _TwiceError(Exception):
    """A key that comes twice in an object."""


def _read_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object of JSON; of a key that comes twice, nobody knows which value was meant."""
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise _TwiceError(key)
        found[key] = value
    return found


def _read_jsonl(
    path: str, wanted: TableColumns, on_bad_line: OnBadLine, max_bytes: int | None, notify: Notify
) -> Iterator[Row]:
    """One object per line; the texts are values of its keys."""
    keys = wanted.columns or wanted.names
    should = f"should be an object with the texts {_join_words([repr(k) for k in keys])}"
    for line, text in enumerate(iter_lines(path, max_bytes), 1):
        if isinstance(text, BadLine):
            on_bad_line(text)
            continue
        text, where = strip_line_end(text), f"{path}, line {line}"
        try:
            entry = json.loads(text, object_pairs_hook=_read_object)
        except _TwiceError as error:
            on_bad_line(BadLine("a key twice", f"{where}: the key {str(error)!r} comes twice; leave one of them"))
            continue
        except (ValueError, RecursionError) as error:
            on_bad_line(BadLine("not JSON", f"{where}: not JSON: {error}"))
            continue
        values = [entry.get(key) for key in keys] if isinstance(entry, dict) else []
        found = [value for value in values if isinstance(value, str)]
        if len(found) < len(keys):
            on_bad_line(BadLine("other JSON", f"{where}: {should}, got {text[:80]}; set columns to its keys"))
        elif "\\u" in text and any(UNUSABLE.search(value) for value in found):
            on_bad_line(
                BadLine("a NUL or half a character", f"{where}: a text contains a NUL or half a surrogate pair")
            )
        else:
            yield line, tuple(found)


READERS: dict[str, Callable[[str, TableColumns, OnBadLine, int | None, Notify], Iterator[Row]]] = {
    ".tsv": _read_tsv,
    ".csv": _read_csv,
    ".jsonl": _read_jsonl,
}
"""Readers of tables, by the ending of the file name."""
UNUSABLE = re.compile(r"[\x00\ud800-\udfff]")
"""Characters that JSON escapes can express, but that valid text cannot or should not contain."""


def _select_columns(
    path: str,
    wanted: TableColumns,
    rows: Iterator[tuple[int, list[str] | BadLine]],
    on_bad_line: OnBadLine,
    notify: Notify,
) -> Iterator[Row]:
    """Yield the requested columns. All rows need as many columns as the first, which must be valid: it may be the header."""
    start, first = next(rows)
    if isinstance(first, BadLine):
        raise DataError(f"{first.message}; fix it, because the first line determines the columns")
    below = list(islice(rows, SAMPLE))
    table = read_header(path, wanted, first, [cells for _, cells in below if not isinstance(cells, BadLine)])
    if table.note:
        notify(table.note)
    for line, cells in chain([] if table.header else [(start, first)], below, rows):
        if isinstance(cells, BadLine):
            on_bad_line(cells)
        elif len(cells) == len(first):
            yield line, tuple(cells[place] for place in table.places)
        else:
            said = f"{path}, line {line}: {len(cells)} columns, but the first line has {len(first)}"
            on_bad_line(BadLine("another number of columns", said))


def _join_words(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
