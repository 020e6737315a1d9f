"""Calibration with and without label smoothing.

A comparison whose metric is the calibration error; beside it reliability diagrams, and what a temperature fitted on half of the
test items does to the other half.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from regard.report.chart import Series
from regard.report.table import Cell, Table
from regard.spec import Plain
from regard.studies.compare import TEST, Comparer, CompareResult
from regard.studies.compare_report import tell_terms, tell_verdicts
from regard.studies.grid import Grid
from regard.studies.methods import NamedRecipe, Terms, list_entries
from regard.studies.study_options import StudyOptions
from regard.studies.study_report import Chapter, Chart, Reporting, StudyReport, mean_cell

SMOOTHINGS = (0.0, 0.1)
PROBE = "calibration"


@dataclasses.dataclass(frozen=True)
class CalibrationResult(Reporting):
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
                    row[f"{what} {when}"] = mean_cell([probe[when][what] for probe in self.probes(sample.name)])
            row["temperature"] = mean_cell([probe["temperature"] for probe in self.probes(sample.name)])
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

    def report(self) -> StudyReport:
        charts = []
        for when in ("before", "after"):
            lines = [Series(s.name, self.reliability(s.name, when)) for s in self.compared.samples]
            ideal = Series("ideal", [(0.0, 0.0), (1.0, 1.0)])
            charts.append(Chart(f"accuracy by confidence, {when} the temperature", [*lines, ideal], "confidence"))
        first = Chapter("Calibration", [self.table(), *charts], "reliability")
        return StudyReport("Calibration", [first, tell_verdicts(self.compared), tell_terms(self.compared)])


def run(
    grid: Grid, recipes: Sequence[str], options: StudyOptions, *, vary: Sequence[str] = (), metric: str = "ece"
) -> CalibrationResult:
    """Compare the calibration of recipes; of one recipe, without and with label smoothing."""
    if len(recipes) == 1 and not vary:
        key = "train.label_smoothing"
        entries = [NamedRecipe(f"smoothing {s:g}", recipes[0], {**options.set, key: s}) for s in SMOOTHINGS]
    else:
        entries = list_entries(recipes, vary, options.set)
    terms = Terms(options.seeds_for(), metric=metric, probes=(PROBE,))
    return CalibrationResult(Comparer(grid, terms, options, "calibration").run(entries))
