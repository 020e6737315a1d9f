"""Heatmaps as inline SVG.

Labels may be in any script and direction. A number that is not finite gets a frame and no color.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from regard.errors import ShapeError
from regard.report.axis import is_drawable
from regard.report.chart import place
from regard.report.markup import Html, tag
from regard.report.number import compact, number
from regard.report.table import display_width

CELLS = 256
"""Maximum number of rows or columns of a heatmap."""
GLYPH = 7.5
"""Width of a character, in pixels, where it is wider than most."""
LABEL = 16
"""Width of a label, in characters; longer ones are truncated and shown in full on hover."""


def heatmap(
    title: str,
    matrix: Sequence[Sequence[float]],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    low: float | None = None,
    high: float | None = None,
) -> Html:
    """A figure with one cell for each number: blank at `low`, full color at `high` (if not given, the extremes)."""
    _check(title, matrix, rows, columns)
    values = [v for line in matrix for v in line if is_drawable(v)]
    low = min(values, default=0.0) if low is None else low
    high = max(values, default=1.0) if high is None else high
    cell = max(5, min(26, 620 // max(1, len(columns))))
    beside, above = [_shorten(r) for r in rows], [_shorten(c) for c in columns]
    widest = max(map(display_width, above), default=0)
    upright = widest * GLYPH <= cell  # column labels are rotated unless all of them fit
    left = 14 + GLYPH * max(map(display_width, beside), default=0)
    top = 20 if upright else 14 + GLYPH * widest
    width, height = left + cell * len(columns) + 2, top + cell * len(rows) + 2
    every = math.ceil(12 / cell)  # a label needs twelve pixels
    marks = []
    for i in range(0, len(rows), every):
        spot = f"translate({place(left - 7)} {place(top + cell * (i + 0.5) + 4)})"
        marks.append(tag("text", tag("title", rows[i]), beside[i], class_="end", transform=spot))
    for j in range(0, len(columns), every):
        middle = left + cell * (j + 0.5)
        turned = f"translate({place(middle + 4)} {place(top - 7)}) rotate(-90)"
        spot, side = (f"translate({place(middle)} 13)", "middle") if upright else (turned, None)
        marks.append(tag("text", tag("title", columns[j]), above[j], class_=side, transform=spot))
    cells = [
        _cell(value, low, high, x=j, y=i, hint=f"{_isolate(row)} → {_isolate(column)}: {number(value)}")
        for i, (row, line) in enumerate(zip(rows, matrix, strict=True))
        for j, (column, value) in enumerate(zip(columns, line, strict=True))
    ]
    frame = f"translate({place(left)} {place(top)}) scale({cell})"
    drawing = tag(
        "svg", *marks, tag("g", *cells, class_="cells", transform=frame),
        viewBox=f"0 0 {place(width)} {place(height)}", width=place(width), height=place(height),
        role="img", aria_label=f"{title}: {len(rows)} rows, {len(columns)} columns",
    )  # fmt: skip
    key = tag("span", compact(low), tag("i", class_="ramp"), compact(high), class_="note")
    return tag(
        "figure", tag("figcaption", tag("b", title), key), tag("div", drawing, class_="scroll"), class_="heatmap"
    )


def _check(title: str, matrix: Sequence[Sequence[float]], rows: Sequence[str], columns: Sequence[str]) -> None:
    widths = sorted({len(line) for line in matrix})
    if len(matrix) != len(rows) or any(w != len(columns) for w in widths):
        raise ShapeError(
            f"heatmap {title!r} should have a label for each row and column: the matrix is "
            f"{len(matrix)} x {' or '.join(map(str, widths)) or 0}, the labels are {len(rows)} x {len(columns)}"
        )
    if max(len(rows), len(columns)) > CELLS:
        raise ShapeError(
            f"heatmap {title!r} should have at most {CELLS} rows and columns, got {len(rows)} x {len(columns)}; "
            "draw a part of it"
        )


def _cell(value: float, low: float, high: float, *, x: int, y: int, hint: str) -> Html:
    if not is_drawable(value):
        return tag("rect", tag("title", hint), x=x, y=y, class_="lost")
    share = min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.0
    return tag("rect", tag("title", hint), x=x, y=y, fill_opacity=f"{share:.2f}")


def _shorten(label: str) -> str:
    """A label that fits and is visible: spaces are shown as symbols if there is nothing else."""
    if not label.strip():
        label = label.replace(" ", "␣").replace("\n", "↵").replace("\t", "⇥") or "∅"
    if display_width(label[: 4 * LABEL]) <= LABEL and len(label) <= 4 * LABEL:
        return label
    room = next(n for n in range(4 * LABEL, -1, -1) if display_width(label[:n]) < LABEL)
    return label[:room] + "…"


def _isolate(label: str) -> str:
    """Text of either direction inside a title, where no markup can keep its neighbors in place."""
    return f"\u2068{label}\u2069"
