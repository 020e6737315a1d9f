"""Griffe extension: show the rows of a docstring (`name    what it is`) as a list."""

from __future__ import annotations

import re

from griffe import Extension, Object

ROW = re.compile(r"^([a-z_]+) {2,}(\S.*)$")


def as_list(doc: str) -> str:
    """Rows as Markdown items; lines that go on a row are indented in the source."""
    lines: list[str] = []
    inside = False
    for line in doc.splitlines():
        if row := ROW.match(line):
            lines += [""] * (not inside) + [f"- `{row[1]}`: {row[2]}"]
            inside = True
        elif inside and line.startswith("   ") and line.strip():
            lines[-1] += f" {line.strip()}"
        else:
            lines += [""] * (inside and bool(line.strip())) + [line]
            inside = False
    return "\n".join(lines)


class DocstringRows(Extension):
    def on_object(self, *, obj: Object, **_: object) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_list(obj.docstring.value)
