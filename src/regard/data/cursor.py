"""A cursor: a place in a text, and what is around it."""

from __future__ import annotations

import dataclasses
import re

from regard.data.text_files import read_text, strip_line_end
from regard.errors import DataError, SpecError

PLACE = re.compile(r"([^:].*?):([0-9]{1,9})(?::([0-9]{1,9}))?", re.DOTALL)
SHOWN = 24
"""Characters on each side of a cursor when it is shown."""


@dataclasses.dataclass(frozen=True)
class Cursor:
    """The text before a place and after it."""

    before: str
    after: str | None = None
    """None if it is not known."""

    @classmethod
    def read(cls, place: str) -> Cursor:
        """Read a file at `FILE:LINE:COLUMN`, both from 1, or at the end of a line: `FILE:LINE`.

        Column 1 is before the first character of a line.
        """
        path, line, column = _parse(place)
        lines = read_text(path).split("\n")
        if not 1 <= line <= len(lines):
            raise DataError(f"{path} has {len(lines):,} lines, got line {line}")
        width = len(strip_line_end(lines[line - 1] + "\n"))
        column = width + 1 if column is None else column
        if not 1 <= column <= width + 1:
            raise DataError(f"line {line} of {path} has columns 1 to {width + 1}, got column {column}")
        here = lines[line - 1]
        return cls("\n".join([*lines[: line - 1], here[: column - 1]]), "\n".join([here[column - 1 :], *lines[line:]]))

    def __str__(self) -> str:
        """The text around the cursor."""
        return f"{self.before[-SHOWN:]}▮{(self.after or '')[:SHOWN]}"


def _parse(place: str) -> tuple[str, int, int | None]:
    found = PLACE.fullmatch(place)
    if found is None:
        raise SpecError(f"--at takes FILE:LINE:COLUMN, such as main.py:12:8, got {place!r}")
    path, line, column = found.groups()
    return path, int(line), None if column is None else int(column)
