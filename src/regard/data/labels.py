"""Texts with their labels: one label a text, or one for each word or letter of it.

    .tsv .csv .jsonl     text and label; with `pair`, text, other and label. Columns go by these names, or in this order
    the same             text and labels: as many labels as words, or as many letters as letters
    any other file       CoNLL: a word and its label a line (the first and last column), a blank line after each sentence

Both sides are kept as strings, `Pairs` of what is read and what should be said; two texts are joined by a tab.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from regard.data.pairs import Pairs
from regard.data.tables import Columns, is_table, read_columns
from regard.data.text_files import BadLine, read_lines
from regard.errors import DataError

Unit = Literal["words", "letters"]
BETWEEN = "\t"
"""What stands between the two texts of a pair."""


def read_labeled(path: str, *, pair: bool = False, columns: Columns | None = None) -> Pairs:
    """Texts, or pairs of them, each with its label."""
    names = ("text", "other", "label") if pair else ("text", "label")
    _check_columns(columns, names)
    texts, labels = [], []
    for line, cells in read_columns(path, names, columns, _raise_bad_line):
        for name, cell in zip(names, cells, strict=True):
            if not cell.strip():
                raise DataError(f"{path}, line {line}: the {name} is empty")
        texts.append(join_texts(*cells[:-1]))
        labels.append(" ".join(cells[-1].split()))
    return _to_pairs(path, texts, labels)


def read_tagged(path: str, unit: Unit, *, columns: Columns | None = None) -> Pairs:
    """Texts with a label for each word or letter of them."""
    _check_columns(columns, ("text", "labels"))
    if is_table(path):
        rows: Iterator[tuple[int, tuple[str, ...]]] = read_columns(path, ("text", "labels"), columns, _raise_bad_line)
    else:
        rows = _read_conll(path)
    texts, labels = [], []
    for line, (text, tags) in rows:
        one, other = split_units(text, unit), split_units(tags, unit)
        if not one or len(one) != len(other):
            raise DataError(
                f"{path}, line {line}: {len(one)} {unit} and {len(other)} labels; there should be as many (data.unit says "
                "whether words or letters have them)"
            )
        texts.append(join_units(one, unit))
        labels.append(join_units(other, unit))
    return _to_pairs(path, texts, labels)


def join_texts(text: str, other: str | None = None) -> str:
    """One text or two as one string."""
    return text if other is None else BETWEEN.join(part.replace(BETWEEN, " ") for part in (text, other))


def split_units(text: str, unit: Unit) -> list[str]:
    """The words or letters of a text; or the labels of its words or letters."""
    return text.split() if unit == "words" else list(text.strip())


def join_units(labels: list[str], unit: Unit) -> str:
    """The text that has these words or letters."""
    return (" " if unit == "words" else "").join(labels)


def _read_conll(path: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Sentences, each with the line it begins at."""
    words, labels, start = list[str](), list[str](), 1
    for line, text in enumerate([*read_lines(path), ""], 1):
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


def _to_pairs(path: str, texts: list[str], labels: list[str]) -> Pairs:
    if not texts:
        raise DataError(f"{path} holds no texts with labels")
    return Pairs(texts, labels, name=Path(path).name)


def _check_columns(columns: Columns | None, names: tuple[str, ...]) -> None:
    if columns is not None and len(columns) != len(names):
        raise DataError(f"columns should be {len(names)}, for {', '.join(names)}, got {list(columns)}")


def _raise_bad_line(fault: BadLine) -> None:
    raise DataError(fault.message)
