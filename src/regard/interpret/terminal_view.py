"""A view as text in a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from regard.interpret.heads import HeadLink
from regard.interpret.view import View
from regard.interpret.word_joining import join_labels, join_weights, word_of_tokens
from regard.report.table import display_width

SHADES = " ░▒▓█"
WIDEST = 12
"""Characters of a label."""


def render_map(weights: Tensor, rows: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Weights (n, m) as shades, with labels on the left and numbers of columns on top."""
    left = max((min(display_width(row), WIDEST) for row in rows), default=0)
    lines = [" " * (left + 1) + "".join(f"{j % 100:>2}" for j in range(len(columns)))]
    for label, row in zip(rows, weights.tolist(), strict=True):
        shades = "".join(2 * SHADES[min(int(value * (len(SHADES) - 1) + 0.5), len(SHADES) - 1)] for value in row)
        short = label if display_width(label) <= WIDEST else label[: WIDEST - 1] + "…"
        lines.append(f"{' ' * (left - min(display_width(short), left))}{short} {shades}")
    return lines


def render_view(view: View, *, layer: str | None = None, head: int | None = None, words: bool = True) -> str:
    """One head as a map (by default the mean of the last layer's heads), then what is known of all heads."""
    chosen = view.layers[-1] if layer is None else view.layer(layer)
    weights = chosen.weights
    rows, columns = chosen.rows or view.labels(chosen.queries), chosen.columns or view.labels(chosen.keys)
    if words and chosen.columns is None:
        owners = word_of_tokens(rows), word_of_tokens(columns)
        weights = join_weights(weights, *owners)
        rows, columns = (join_labels(each, owner) for each, owner in zip((rows, columns), owners, strict=True))
    one = weights.mean(0) if head is None else weights[head]
    lines = [f"{view.text} → {view.output}" if view.output else view.text, ""]
    which = "mean of all heads" if head is None else f"head {head + 1}"
    lines.append(chosen.title if chosen.rows else f"{chosen.title}, {which}")
    lines += render_map(one, rows, columns)
    lines += ["", *(f"{j:>2} {label}" for j, label in enumerate(columns))]
    if view.hops:
        lines += ["", *(f"hop {hop.number} looks at  {hop.sentence}  ({hop.weight:.0%})" for hop in view.hops)]
    lines += ["", *view.omitted] if view.omitted else []
    return "\n".join(lines)


def render_links(links: Sequence[HeadLink], query: str, key: str, most: int = 10) -> str:
    """The strongest heads of a link."""
    lines = [f"{query} → {key}: heads by weight", f"{'weight':>7}  {'rank':>4}  head"]
    lines += [f"{link.weight:7.3f}  {link.rank:>4}  {link.layer} head {link.head + 1}" for link in links[:most]]
    return "\n".join(lines)
