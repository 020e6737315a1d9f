"""Tables, page and figures of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from regard.metrics import METRICS
from regard.report.chart import Series, line_chart
from regard.report.markup import Html, tag
from regard.report.number import duration
from regard.report.page import Section, grid, page
from regard.report.table import Cell, Table
from regard.studies.grid import CellResult

if TYPE_CHECKING:
    from regard.studies.compare import CompareResult
    from regard.studies.methods import Method

Axis = Callable[["CompareResult", int], float]
"""The cost of contender i."""


def score_table(found: CompareResult) -> Table:
    """A row per contender: its score over seeds, what it costs, and the verdict."""
    verdicts = {verdict.name: verdict.word for verdict in found.verdicts}
    rows = []
    for i, (method, sample) in enumerate(zip(found.methods, found.samples, strict=True)):
        row: dict[str, Cell] = {
            "contender": method.name,
            found.metric: round(sample.mean, 4) if sample.scores else None,
            "± over seeds": None if sample.deviation is None else round(sample.deviation, 4),
            "seeds": len(sample.scores),
            "parameters": method.parameters,
            "GFLOPs": round(_flops(found, i) / 1e9, 1),
            "minutes": round(_minutes(found, i), 2),
            "verdict": verdicts.get(method.name, "baseline"),
        }
        rows.append(row)
    return Table.of(rows)


def render_comparison(found: CompareResult) -> str:
    """The verdicts in words, the table, and what was done to be fair."""
    lines = [score_table(found).markdown()]
    lines += [verdict.sentence for verdict in found.verdicts]
    lines += ["", *found.notes, *(f"{method.name}: {note}" for method in found.methods for note in method.notes)]
    return "\n".join(lines).rstrip()


def learning_curves(found: CompareResult) -> list[tuple[str, str, list[Series]]]:
    """Title, horizontal axis and a line per contender: the mean over seeds, with a band from the lowest to the highest."""
    out = []
    for column, title in ((1, "validation loss"), (2, f"validation {found.metric}")):
        for by in ("step", "minutes"):
            series = [_curve(name, cells, column, by) for name, cells in found.cells.items()]
            if all(each.points for each in series) and not (column == 2 and found.metric == "loss"):
                out.append((title, by, series))
    return out


def _curve(name: str, cells: Sequence[CellResult], column: int, by: str) -> Series:
    runs = [each for each in cells if not each.error]
    count = min((len(each.result["curve"]) for each in runs), default=0)
    points, band = [], []
    for i in range(count):
        values = [each.result["curve"][i][column] for each in runs]
        if any(value is None for value in values):
            continue
        seconds = [each.timing["curve"][i] / 60 for each in runs]
        x = float(np.mean(seconds)) if by == "minutes" else float(runs[0].result["curve"][i][0])
        points.append((x, float(np.mean(values))))
        band.append((x, float(min(values)), float(max(values))))
    return Series(name, points, band if len(runs) > 1 else ())


COSTS: dict[str, Axis] = {
    "parameters": lambda found, i: float(found.methods[i].parameters),
    "training GFLOPs": lambda found, i: _flops(found, i) / 1e9,
    "minutes": lambda found, i: _minutes(found, i),
}


def pareto(found: CompareResult) -> list[tuple[str, list[tuple[str, float, float, bool]]]]:
    """For each cost, the contenders with their cost and score, and whether none is both cheaper and better."""
    out = []
    higher = METRICS[found.metric].higher
    for name, cost in COSTS.items():
        points = [(s.name, cost(found, i), s.mean) for i, s in enumerate(found.samples) if s.scores]
        best = [
            (who, x, y, not any(_beats(a, (x, y), higher) for _, *a in points))
            for who, x, y in points
        ]  # fmt: skip
        out.append((name, best))
    return out


def _beats(a: Sequence[float], b: tuple[float, float], higher: bool) -> bool:
    good = a[1] >= b[1] if higher else a[1] <= b[1]
    return a[0] <= b[0] and good and (a[0], a[1]) != b


def render_page(found: CompareResult) -> str:
    """The study as a self-contained page."""
    words = [tag("li", verdict.sentence) for verdict in found.verdicts]
    notes = [*found.notes, *(f"{method.name}: {note}" for method in found.methods for note in method.notes)]
    curves = [line_chart(title, series, x=by) for title, by, series in learning_curves(found)]
    costs = [_scatter(found.metric, name, points) for name, points in pareto(found)]
    sections = [
        Section("Verdict", (tag("ul", *words), score_table(found).html())),
        Section(
            "Learning curves", (tag("p", "Mean over seeds; the band reaches from the worst to the best."), grid(curves))
        ),
        Section("Quality and cost", (_explain_pareto(found), grid(costs))),
        Section("Terms", (tag("ul", *(tag("li", note) for note in notes)),)),
    ]
    names = ", ".join(method.name for method in found.methods)
    return page(f"{found.title}: {names}", sections)


def _scatter(metric: str, cost: str, points: Sequence[tuple[str, float, float, bool]]) -> Html:
    return line_chart(f"{metric} by {cost}", [Series(who, [(x, y)]) for who, x, y, _ in points], x=cost)


def _explain_pareto(found: CompareResult) -> Html:
    lines = [
        f"by {name}: {', '.join(who for who, _, _, best in points if best)}" for name, points in pareto(found) if points
    ]
    return tag("p", f"Contenders that no other one beats in both: {'; '.join(lines)}.")


def draw_comparison(found: CompareResult, folder: Path) -> list[Path]:
    """Write the figures as PNG, if matplotlib is installed; returns their paths."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return []
    made = []
    curves = learning_curves(found)
    if curves:
        figure = Figure(figsize=(5 * len(curves), 4), dpi=150, layout="constrained")
        for axes, (title, by, series) in zip(np.atleast_1d(figure.subplots(1, len(curves))), curves, strict=True):
            for each in series:
                (line,) = axes.plot(*zip(*each.points, strict=True), marker="o", markersize=3, label=each.name)
                if each.band:
                    axes.fill_between(*zip(*each.band, strict=True), alpha=0.2, color=line.get_color())
            axes.set(xlabel=by, ylabel=title)
            axes.grid(alpha=0.3)
            axes.legend(fontsize="small")
        made.append(folder / "curves.png")
        figure.savefig(made[-1])
    costs = pareto(found)
    figure = Figure(figsize=(5 * len(costs), 4), dpi=150, layout="constrained")
    for axes, (name, points) in zip(figure.subplots(1, len(costs)), costs, strict=True):
        for sample, (who, x, y, best) in zip([s for s in found.samples if s.scores], points, strict=True):
            axes.errorbar([x], [y], yerr=[sample.deviation or 0.0], fmt="o" if best else "x", label=who, capsize=3)
        axes.set(xlabel=name, ylabel=found.metric)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    made.append(folder / "pareto.png")
    figure.savefig(made[-1])
    return made


def describe_cost(found: CompareResult) -> str:
    """What the whole study cost."""
    seconds = sum(_seconds(cell) for cells in found.cells.values() for cell in cells)
    return f"{sum(map(len, found.cells.values()))} cells, {duration(seconds)} of training"


def _flops(found: CompareResult, i: int) -> float:
    """FLOPs of one training run."""
    method: Method = found.methods[i]
    tokens = [cell.result["tokens"] for cell in found.cells[method.name] if not cell.error]
    return method.flops * (float(np.mean(tokens)) if tokens else 0.0)


def _minutes(found: CompareResult, i: int) -> float:
    cells = [cell for cell in found.cells[found.methods[i].name] if not cell.error]
    return float(np.mean([_seconds(cell) for cell in cells])) / 60 if cells else 0.0


def _seconds(cell: CellResult) -> float:
    return float(cell.timing.get("seconds") or 0.0)
