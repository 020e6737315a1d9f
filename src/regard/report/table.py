"""Tables as Markdown, as HTML, or in a terminal.

Columns of numbers are aligned to the right and share their number of decimals; an absent value is a dash.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from regard.errors import ShapeError, make_printable
from regard.report.markup import Html, tag
from regard.report.number import numbers

if TYPE_CHECKING:
    from rich.table import Table as RichTable

Cell = str | int | float | bool | None
ABSENT = "–"
# What Markdown would take for markup. Underscores inside a word and a lone ampersand are text to it already.
MARKDOWN = re.compile(r"[\\`*\[\]<>|~$]|(?<!\w)_|_(?!\w)|&(?=#?\w+;)")


@dataclass(frozen=True)
class Table:
    """A heading, and rows with the same number of cells."""

    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __post_init__(self) -> None:
        for i, row in enumerate(self.rows):
            if len(row) != len(self.head):
                raise ShapeError(f"row {i} should have {len(self.head)} cells ({', '.join(self.head)}), got {len(row)}")

    @classmethod
    def of(cls, records: Iterable[Mapping[str, Cell]]) -> Self:
        """A table of records with one column per key, in order of first appearance."""
        kept = list(records)
        head = tuple(dict.fromkeys(key for record in kept for key in record))
        return cls(head, tuple(tuple(record.get(key) for key in head) for record in kept))

    def markdown(self) -> str:
        """GitHub's Markdown, padded so that it also reads well as plain text."""
        right, texts = self._texts()
        lines = [[_markdown(t) for t in line] for line in (self.head, *texts)]
        widths = [max(3, *(display_width(line[i]) for line in lines)) for i in range(len(self.head))]
        rule = ["-" * (w - 1) + (":" if r else "-") for w, r in zip(widths, right, strict=True)]
        body = [[_pad(t, w, r) for t, w, r in zip(line, widths, right, strict=True)] for line in lines]
        return "".join(f"| {' | '.join(line)} |\n" for line in (body[0], rule, *body[1:]))

    def html(self) -> Html:
        """An HTML table that scrolls sideways where the page is narrow; text runs in its own direction."""
        right, texts = self._texts()
        sides = ["number" if r else None for r in right]
        head = [tag("th", h, scope="col", class_=side) for h, side in zip(self.head, sides, strict=True)]
        body = [
            tag("tr", *(tag("td", t, class_=side, dir="auto") for t, side in zip(line, sides, strict=True)))
            for line in texts
        ]
        table = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body))
        return tag("div", table, class_="scroll")

    def terminal(self) -> RichTable:
        """A table for rich to print."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as RichTable
        from rich.text import Text

        right, texts = self._texts()
        table = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for name, r in zip(self.head, right, strict=True):
            table.add_column(Text(name), justify="right" if r else "left", no_wrap=r)
        for line in texts:
            table.add_row(*(Text(make_printable(t)) for t in line))
        return table

    def _texts(self) -> tuple[list[bool], list[list[str]]]:
        """Tell which columns are numbers, and return the text of each cell."""
        columns = [[row[i] for row in self.rows] for i in range(len(self.head))]
        shown = [_column(column) for column in columns]
        return [r for r, _ in shown], [list(line) for line in zip(*(texts for _, texts in shown), strict=True)]


def _column(cells: Sequence[Cell]) -> tuple[bool, list[str]]:
    """Tell whether a column is numeric, and return its cells as text."""
    values = [c for c in cells if isinstance(c, (int, float)) and not isinstance(c, bool)]
    texts = iter(numbers(values))
    shown = [next(texts) if isinstance(c, (int, float)) and not isinstance(c, bool) else _word(c) for c in cells]
    return bool(values) and len(values) == sum(c is not None for c in cells), shown


def _word(cell: str | bool | None) -> str:
    return ABSENT if cell is None else cell if isinstance(cell, str) else "yes" if cell else "no"


def _markdown(text: str) -> str:
    return MARKDOWN.sub(lambda m: "&amp;" if m[0] == "&" else f"\\{m[0]}", make_printable(" ".join(text.split())))


def _pad(text: str, width: int, right: bool) -> str:
    room = " " * (width - display_width(text))
    return room + text if right else text + room


def display_width(text: str) -> int:
    """Columns a text takes in a fixed-width font: two for wide characters, none for marks that combine."""
    seen = [c for c in text if unicodedata.category(c) not in ("Mn", "Me", "Cf")]
    return len(seen) + sum(unicodedata.east_asian_width(c) in "WF" for c in seen)
