"""Forecast of the time of a study, before it starts.

The time of finished cells predicts that of others of their kind; without any, a few training steps are timed on this
machine, with the threads that the cell will have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.errors import SpecError
from regard.report.number import duration
from regard.studies.grid import Cell, Grid
from regard.studies.methods import Method
from regard.studies.preparation import time_recipe


@dataclass(frozen=True)
class Work:
    """Cells that train one recipe, and so take equally long."""

    method: Method
    cells: Sequence[Cell]

    def seconds(self, grid: Grid) -> float:
        """Seconds of training that are left, one cell after the other."""
        left = len(grid.missing(self.cells))
        if not left:
            return 0.0
        done = [f for cell in self.cells if (f := grid.read(cell)) is not None and "seconds" in f.timing]
        if done:
            return left * sum(float(f.timing["seconds"] + f.timing["test_seconds"]) for f in done) / len(done)
        self.method.timing = self.method.timing or time_recipe(self.method.recipe, self.method.corpus)
        return left * self.method.timing.seconds


def forecast(
    grid: Grid, work: Sequence[Work], *, what: str, minutes: float | None, remedy: str, whole: int = 0
) -> float:
    """Say how long the cells will take; refuse if that is longer than the `minutes` given.

    `remedy` says what to lower. `whole` is the number of seeds asked for; with it, a refusal says how many would fit.
    """
    seconds = sum(each.seconds(grid) for each in work) / grid.parallel
    if minutes is not None and seconds > 60 * minutes:
        fit = f": about {int(whole * 60 * minutes / seconds)} seeds fit" if whole else ""
        raise SpecError(
            f"this study would take about {duration(seconds)}, and {minutes:g} minutes are given{fit}; {remedy}, or give "
            f"--minutes {seconds / 60 * 1.2:.0f}"
        )
    count = sum(len(each.cells) for each in work)
    grid.say(
        f"{what}, {count} cells: about {duration(seconds)} of training in {grid.parallel} processes of one thread, plus "
        "validation and tests"
    )
    return seconds
