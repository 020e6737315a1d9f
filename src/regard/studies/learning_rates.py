"""The best learning rate by width, with muP and without.

In the standard parametrization a wider model wants a smaller rate. With muP (`model.mup_base`), the best rate of a narrow model
is that of a wide one, too. Every width is trained with every rate, both ways; validation data judges.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from regard.errors import SpecError
from regard.report.chart import Series
from regard.report.table import Cell as TableCell
from regard.report.table import Table
from regard.studies.compare import TUNING_SEED, Comparer
from regard.studies.forecast import Work, forecast
from regard.studies.grid import Cell, CellResult, Grid
from regard.studies.methods import Method, NamedRecipe, Terms, find_rate
from regard.studies.preparation import change, set_width
from regard.studies.study_options import StudyOptions
from regard.studies.study_report import Chapter, Chart, Reporting, StudyReport

STANDARD, MUP = "standard", "muP"


@dataclasses.dataclass(frozen=True)
class RatesResult(Reporting):
    """Validation losses by parametrization, width and rate; infinite where training diverged."""

    losses: Mapping[tuple[str, int], Mapping[float, float]]

    def best(self, way: str, width: int) -> float:
        """The rate with the lowest loss."""
        found = self.losses[way, width]
        return min(found, key=lambda rate: found[rate])

    @property
    def widths(self) -> list[int]:
        return sorted({width for _, width in self.losses})

    def shift(self, way: str) -> float:
        """The best rate of the widest model, in units of that of the narrowest."""
        return self.best(way, self.widths[-1]) / self.best(way, self.widths[0])

    def table(self) -> Table:
        rates = sorted({rate for found in self.losses.values() for rate in found})
        rows = []
        for (way, width), found in self.losses.items():
            row: dict[str, TableCell] = {
                "parametrization": way,
                "width": width,
                "best rate": f"{self.best(way, width):.3g}",
            }
            row |= {f"{rate:.3g}": round(found[rate], 4) if math.isfinite(found[rate]) else None for rate in rates}
            rows.append(row)
        return Table.of(rows)

    def sentence(self, way: str) -> str:
        """Tell how far the best rate moves with the width, and what it costs to keep that of the narrowest model."""
        low, high = self.widths[0], self.widths[-1]
        found = self.losses[way, high]
        return (
            f"{way}: the best rate of width {high} is {self.shift(way):.3g} times that of width {low}; its loss is "
            f"{min(found.values()):.4f} there, and {found[self.best(way, low)]:.4f} at the best rate of width {low}"
        )

    def plain(self) -> dict[str, object]:
        return {
            "study": "rates",
            "runs": [
                {"parametrization": way, "width": width, "best": self.best(way, width)}
                | {"losses": [[rate, loss if math.isfinite(loss) else None] for rate, loss in found.items()]}
                for (way, width), found in self.losses.items()
            ],
            "shift": {way: self.shift(way) for way in (STANDARD, MUP)},
        }

    def report(self) -> StudyReport:
        charts = [
            Chart(
                f"{way}: validation loss", [self._series(way, width) for width in self.widths], "learning rate", "log"
            )
            for way in (STANDARD, MUP)
        ]
        parts: list[str | Table | Chart] = [self.table(), *map(self.sentence, (STANDARD, MUP)), *charts]
        return StudyReport(
            "The best learning rate by width",
            [Chapter("Rates", parts, "rates")],
        )

    def _series(self, way: str, width: int) -> Series:
        found = self.losses[way, width]
        return Series(f"width {width}", [(rate, loss) for rate, loss in sorted(found.items()) if math.isfinite(loss)])


def run(
    grid: Grid, recipes: Sequence[str], options: StudyOptions, *, widths: Sequence[int] = (64, 256), count: int = 7
) -> RatesResult:
    """Train every width with `count` rates around the recipe's own, each twice the one before, with muP and without."""
    if len(recipes) != 1:
        raise SpecError(f"the study of rates is of one recipe, got {len(recipes)}")
    if len({*widths}) < 2 or count < 3:
        raise SpecError(
            f"the study of rates needs two widths and three rates or more, got {len({*widths})} and {count}"
        )
    comparer = Comparer(grid, Terms(2, metric="loss"), options, "rates")
    (base,) = comparer.prepare([NamedRecipe(recipes[0], recipes[0], options.set)])
    path, own = find_rate(base.recipe)
    rates = [own * 2.0 ** (i - count // 2) for i in range(count)]
    cells: dict[tuple[str, int], dict[float, list[Cell]]] = {}
    work = []
    for way in (STANDARD, MUP):
        for width in sorted({*widths}):
            changes = set_width(base.recipe, width) | {"model.mup_base": min(widths) if way == MUP else None}
            method = dataclasses.replace(base, name=f"{way}, width {width}", recipe=change(base.recipe, changes))
            cells[way, width] = {rate: _cells(comparer, method, path, rate, options.seeds_for(1)) for rate in rates}
            work.append(Work(method, [cell for each in cells[way, width].values() for cell in each]))
    forecast(
        grid, work, what=f"{count} rates at {len({*widths})} widths, twice", minutes=options.minutes,
        remedy="lower train.steps or the widths",
    )  # fmt: skip
    order = [cell for each in work for cell in each.cells]
    found = {each.cell.key: each for each in grid.run(order)}
    return RatesResult(
        {
            at: {rate: _mean_loss([found[cell.key] for cell in each]) for rate, each in by_rate.items()}
            for at, by_rate in cells.items()
        }
    )


def _cells(comparer: Comparer, method: Method, path: str, rate: float, seeds: int) -> list[Cell]:
    """A run for each seed, without test data."""
    tried = dataclasses.replace(method, recipe=change(method.recipe, {path: rate}))
    out = []
    for seed in range(TUNING_SEED, TUNING_SEED + seeds):
        cell = comparer.cell(tried, seed, "loss", tests={})
        out.append(Cell(f"{method.name}, rate {rate:.3g}, seed {seed}", cell.job, cell.settings))
    return out


def _mean_loss(found: Sequence[CellResult]) -> float:
    if any(each.error for each in found):
        return math.inf
    return sum(float(each.result["valid"]["best_loss"]) for each in found) / len(found)
