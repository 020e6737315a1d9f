"""Tables, page and figures of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from regard.metrics import METRICS
from regard.report.chart import Series
from regard.report.table import Cell, Table
from regard.studies.grid import CellResult
from regard.studies.study_report import Chapter, Chart, StudyReport

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


def report_comparison(found: CompareResult) -> StudyReport:
    """The verdicts in words, learning curves, quality against cost, and what was done to be fair."""
    names = ", ".join(method.name for method in found.methods)
    return StudyReport(f"{found.title}: {names}", [tell_verdicts(found), *tell_curves(found), tell_terms(found)])


def tell_verdicts(found: CompareResult, title: str = "Verdict") -> Chapter:
    """The table of scores, and a sentence for each contender."""
    return Chapter(title, [*found.mixed, score_table(found), *(verdict.sentence for verdict in found.verdicts)])


def tell_terms(found: CompareResult) -> Chapter:
    """Tell what was done to be fair."""
    notes = [f"{method.name}: {note}" for method in found.methods for note in method.notes]
    energy = (
        [] if "joules" in list_costs(found) else ["energy: not known, since this machine does not tell it (powercap)"]
    )
    return Chapter("Terms", [*found.notes, *notes, *energy])


def tell_curves(found: CompareResult, suffix: str = "") -> list[Chapter]:
    """Learning curves, and quality against each cost; the files of their figures end with `suffix`."""
    curves = [Chart(title, series, by) for title, by, series in learning_curves(found)]
    band = "Mean over seeds; the band reaches from the worst to the best."
    costs = pareto(found)
    best = [f"by {name}: {', '.join(who for who, _, _, good in points if good)}" for name, points in costs if points]
    text = f"Contenders that no other one beats in both: {'; '.join(best)}."
    return [
        Chapter("Learning curves", [band, *curves], f"curves{suffix}", page_only=True),
        Chapter(
            "Quality and cost", [text, *(_scatter(found, *each) for each in costs)], f"pareto{suffix}", page_only=True
        ),
    ]


def learning_curves(found: CompareResult) -> list[tuple[str, str, list[Series]]]:
    """Title, horizontal axis and a line per contender: the mean over seeds, with a band from the lowest to the highest."""
    out = []
    for column, title in ((1, "validation loss"), (2, f"validation {found.metric}")):
        for by in ("step", "minutes"):
            drawn = (_curve(name, cells, column, by) for name, cells in found.cells.items())
            series = [each for each in drawn if each.points]  # a contender whose runs all failed has none
            if series and not (column == 2 and found.metric == "loss"):
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


def list_costs(found: CompareResult) -> dict[str, Axis]:
    """List the costs of contenders; energy only if it is known of every run."""
    known = all(_joules(cell) is not None for cells in found.cells.values() for cell in cells if not cell.error)
    return COSTS | ({"joules": _mean_joules} if known else {})


def _mean_joules(found: CompareResult, i: int) -> float:
    """Joules of one training run; cells that run at once share the processor."""
    own = [_joules(cell) for cell in found.cells[found.methods[i].name] if not cell.error]
    return float(np.mean([each for each in own if each is not None] or [0.0])) / found.parallel


def _joules(cell: CellResult) -> float | None:
    found = cell.timing.get("joules")
    return None if found is None else float(found)


def pareto(found: CompareResult) -> list[tuple[str, list[tuple[str, float, float, bool]]]]:
    """For each cost, the contenders with their cost and score, and whether none is both cheaper and better."""
    out = []
    higher = METRICS[found.metric].higher
    for name, cost in list_costs(found).items():
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


def _scatter(found: CompareResult, cost: str, points: Sequence[tuple[str, float, float, bool]]) -> Chart:
    spread = {sample.name: sample.deviation or 0.0 for sample in found.samples}
    series = [Series(who, [(x, y)], [(x, y - spread[who], y + spread[who])]) for who, x, y, _ in points]
    return Chart(f"{found.metric} by {cost}", series, cost, crossed=[who for who, _, _, best in points if not best])


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
