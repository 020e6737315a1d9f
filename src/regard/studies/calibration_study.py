"""Calibration with and without label smoothing.

A comparison whose metric is the calibration error; beside it reliability diagrams, and what a temperature fitted on half of the
test items does to the other half.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from regard.report.chart import Series, line_chart
from regard.report.page import Section, grid, page
from regard.report.table import Cell, Table
from regard.spec import Plain
from regard.studies.compare import TEST, Comparer, CompareResult
from regard.studies.compare_report import render_comparison
from regard.studies.grid import Grid
from regard.studies.methods import NamedRecipe, Terms, list_entries
from regard.studies.significance import VERDICT_SEEDS

SMOOTHINGS = (0.0, 0.1)
PROBE = "calibration"


@dataclasses.dataclass(frozen=True)
class CalibrationResult:
    """The comparison, and the measurements of calibration beside it."""

    compared: CompareResult

    def probes(self, name: str) -> list[Plain]:
        """The measurements of a contender, one per seed."""
        return [c.result["tests"][TEST]["probes"][PROBE] for c in self.compared.cells[name] if not c.error]

    def table(self) -> Table:
        """A row per contender: calibration before and after fitting a temperature, means over seeds."""
        rows = []
        for sample in self.compared.samples:
            row: dict[str, Cell] = {"contender": sample.name}
            for when in ("before", "after"):
                for what in ("ece", "brier"):
                    row[f"{what} {when}"] = _mean([probe[when][what] for probe in self.probes(sample.name)])
            row["temperature"] = _mean([probe["temperature"] for probe in self.probes(sample.name)])
            rows.append(row)
        return Table.of(rows)

    def reliability(self, name: str, when: str) -> list[tuple[float, float]]:
        """Confidence and accuracy of each bin, over all seeds."""
        bars: dict[int, list[float]] = {}
        for probe in self.probes(name):
            for confidence, accuracy, count in probe[when]["reliability"]:
                sums = bars.setdefault(min(int(confidence * 15), 14), [0.0, 0.0, 0.0])
                for i, value in enumerate((confidence * count, accuracy * count, count)):
                    sums[i] += value
        return [(p / n, hits / n) for _, (p, hits, n) in sorted(bars.items())]

    def plain(self) -> dict[str, object]:
        names = [sample.name for sample in self.compared.samples]
        return self.compared.plain() | {"calibration": {name: self.probes(name) for name in names}}

    def render(self) -> str:
        return "\n".join([self.table().markdown(), render_comparison(self.compared)])

    def page(self) -> str:
        charts = []
        for when in ("before", "after"):
            lines = [Series(s.name, self.reliability(s.name, when)) for s in self.compared.samples]
            ideal = Series("ideal", [(0.0, 0.0), (1.0, 1.0)])
            charts.append(
                line_chart(f"accuracy by confidence, {when} the temperature", [*lines, ideal], x="confidence")
            )
        sections = [
            Section("Calibration", (self.table().html(), grid(charts))),
            Section("Verdicts", tuple(verdict.sentence for verdict in self.compared.verdicts)),
        ]
        return page("Calibration", sections)

    def draw(self, folder: Path) -> list[Path]:
        try:
            from matplotlib.figure import Figure
        except ImportError:
            return []
        figure = Figure(figsize=(9, 4.5), dpi=150, layout="constrained")
        for axes, when in zip(figure.subplots(1, 2), ("before", "after"), strict=True):
            axes.plot([0, 1], [0, 1], ":", color="gray")
            for sample in self.compared.samples:
                if points := self.reliability(sample.name, when):
                    axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=sample.name)
            axes.set(xlabel=f"confidence, {when} the temperature", ylabel="accuracy")
            axes.legend(fontsize="small")
        figure.savefig(folder / "reliability.png")
        return [folder / "reliability.png"]


def run(
    grid: Grid,
    recipes: Sequence[str],
    *,
    data: Sequence[str] = (),
    valid: Sequence[str] = (),
    test: Sequence[str] = (),
    vary: Sequence[str] = (),
    set: Mapping[str, object] | None = None,
    seeds: int = VERDICT_SEEDS,
    metric: str = "ece",
    minutes: float | None = None,
    device: str = "cpu",
) -> CalibrationResult:
    """Compare the calibration of recipes; of one recipe, without and with label smoothing."""
    if len(recipes) == 1 and not vary:
        key = "train.label_smoothing"
        entries = [NamedRecipe(f"smoothing {s:g}", recipes[0], {**(set or {}), key: s}) for s in SMOOTHINGS]
    else:
        entries = list_entries(recipes, vary, set or {})
    terms = Terms(seeds, metric=metric, probes=(PROBE,))
    comparer = Comparer(grid, terms, tuple(data), tuple(valid), tuple(test), minutes, device, "calibration")
    return CalibrationResult(comparer.run(entries))


def _mean(values: Sequence[float]) -> float | None:
    return round(float(np.mean(values)), 4) if values else None
