"""Labeled texts: one label per text, word or character.

    .tsv .csv .jsonl     text and label; with `pair`: text, other and label. Columns have these names, or this order
    the same             text and labels: one label per word, or one character per character
    any other file       CoNLL: a word and its label on each line (first and last column), a blank line after each sentence

Texts and labels are kept as strings in `Pairs`; two texts are joined by a tab.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Literal

from regard.data.line_store import LineWriter
from regard.data.pairs import Pairs
from regard.data.table_header import Columns, TableColumns
from regard.data.tables import is_table, read_columns
from regard.data.text_files import BadLine, read_lines
from regard.errors import DataError

Unit = Literal["words", "letters"]
MAX_ROW_BYTES = 10_000_000
"""Maximum number of bytes in a row of a table; a longer one is not a text with its label."""
BETWEEN = "\t"
"""Separates the two texts of a pair."""


def read_labeled(path: str, *, pair: bool = False, columns: Columns | None = None, header: bool | None = None) -> Pairs:
    """Read texts, or pairs of texts, with one label each."""
    names = ("text", "other", "label") if pair else ("text", "label")
    _check_columns(columns, names)
    texts, labels, notes = LineWriter(), LineWriter(), list[str]()
    wanted = TableColumns(names, columns, header)
    for line, cells in read_columns(path, wanted, _raise_bad_line, MAX_ROW_BYTES, notify=notes.append):
        for name, cell in zip(names, cells, strict=True):
            if not cell.strip():
                raise DataError(f"{path}, line {line}: the {name} is empty")
        texts.add(join_texts(*cells[:-1]))
        labels.add(" ".join(cells[-1].split()))
    return _to_pairs(path, texts, labels, notes)


def read_tagged(path: str, unit: Unit, *, columns: Columns | None = None, header: bool | None = None) -> Pairs:
    """Read texts with one label per word or character."""
    _check_columns(columns, ("text", "labels"))
    notes = list[str]()
    if is_table(path):
        wanted = TableColumns(("text", "labels"), columns, header)
        rows: Iterator[tuple[int, tuple[str, ...]]] = read_columns(
            path, wanted, _raise_bad_line, MAX_ROW_BYTES, notify=notes.append
        )
    else:
        rows = _read_conll(path)
    texts, labels = LineWriter(), LineWriter()
    for line, (text, tags) in rows:
        one, other = split_units(text, unit), split_units(tags, unit)
        if not one or len(one) != len(other):
            raise DataError(
                f"{path}, line {line}: {len(one)} {unit} but {len(other)} labels; the numbers should be equal (data.unit "
                "says whether words or letters are labeled)"
            )
        texts.add(join_units(one, unit))
        labels.add(join_units(other, unit))
    return _to_pairs(path, texts, labels, notes)


def join_texts(text: str, other: str | None = None) -> str:
    """Join one or two texts to one string."""
    return text if other is None else BETWEEN.join(part.replace(BETWEEN, " ") for part in (text, other))


def split_units(text: str, unit: Unit) -> list[str]:
    """Split a text, or its labels, into words or characters."""
    return text.split() if unit == "words" else list(text.strip())


def join_units(labels: list[str], unit: Unit) -> str:
    """Join words or characters to a text."""
    return (" " if unit == "words" else "").join(labels)


def _read_conll(path: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield sentences with the number of their first line."""
    words, labels, start = list[str](), list[str](), 1
    for line, text in enumerate(chain(read_lines(path), [""]), 1):
        cells = text.split()
        if cells and cells[0] != "-DOCSTART-":
            if len(cells) < 2:
                raise DataError(f"{path}, line {line}: should be a word and its label, got {text[:80]!r}")
            start = start if words else line
            words.append(cells[0])
            labels.append(cells[-1])
        elif words:
            yield start, (" ".join(words), " ".join(labels))
            words, labels = [], []


def _to_pairs(path: str, texts: LineWriter, labels: LineWriter, notes: list[str]) -> Pairs:
    pairs = Pairs(texts.lines(), labels.lines(), name=Path(path).name, notes=tuple(notes))
    if not len(pairs):
        raise DataError(f"{path} contains no labeled texts")
    return pairs


def _check_columns(columns: Columns | None, names: tuple[str, ...]) -> None:
    if columns is not None and len(columns) != len(names):
        raise DataError(f"columns should be {len(names)}, for {', '.join(names)}, got {list(columns)}")


def _raise_bad_line(fault: BadLine) -> None:
    raise DataError(fault.message)
