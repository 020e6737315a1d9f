"""A ladder of models, a scaling law, and a prediction.

Every width is trained for every number of steps. Laws are fitted to these runs: L(N, D) to all, L(N) to the longest, L(D) to
the widest. The loss of a larger run is predicted and written down before that run starts; by how much it misses is the result.
Given budgets of FLOPs, every width is also trained with each of them, and the best size of a budget is found (`isoflop.py`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence

from regard.errors import SpecError
from regard.files.storage import DISK, make_folder, write_file
from regard.report.chart import Series
from regard.report.table import Table
from regard.studies.compare import TEST, Comparer
from regard.studies.forecast import Work, forecast
from regard.studies.grid import Cell, CellResult, Grid
from regard.studies.isoflop import IsoFlops, fit_isoflops
from regard.studies.methods import Method, NamedRecipe, Terms
from regard.studies.preparation import Timing, change, set_width, time_recipe
from regard.studies.scaling_law import FittedLaw, RunPoint, fit_law
from regard.studies.study_options import StudyOptions
from regard.studies.study_report import Chapter, Chart, Reporting, StudyReport

LARGER = 4.0
"""Minimum FLOPs of the held-out run, relative to the largest run of the ladder."""
PREDICTION = "prediction.json"


@dataclasses.dataclass(frozen=True)
class Rung:
    """One size of the ladder; with `flops`, the steps are those that this budget allows."""

    width: int
    steps: int
    flops: float | None = None


@dataclasses.dataclass(frozen=True)
class ScalingResult(Reporting):
    """The runs, the laws, and the prediction beside the measured loss."""

    points: Mapping[Rung, Sequence[RunPoint]]
    laws: Mapping[str, FittedLaw]
    prediction: Mapping[str, float]
    held_out: Rung
    loss: float
    isoflops: IsoFlops | None = None
    notes: Sequence[str] = ()

    @property
    def miss(self) -> float:
        """Error of the prediction, relative to the measured loss."""
        return self.prediction["loss"] / self.loss - 1

    def table(self) -> Table:
        rows = [
            {"width": rung.width, "steps": rung.steps, "parameters": int(own[0].parameters), "tokens": int(own[0].tokens),
             "loss": round(sum(p.loss for p in own) / len(own), 4)}
            for rung, own in self.points.items()
        ]  # fmt: skip
        return Table.of(rows)

    def sentence(self) -> str:
        low, high = self.prediction["low"], self.prediction["high"]
        return (
            f"predicted before the run of width {self.held_out.width} and {self.held_out.steps:,} steps: loss "
            f"{self.prediction['loss']:.4f} (95 % interval {low:.4f} … {high:.4f}); it came to {self.loss:.4f}, so the "
            f"prediction missed by {self.miss:+.2%}"
        )

    def plain(self) -> dict[str, object]:
        return {
            "study": "scaling",
            "runs": [
                dataclasses.asdict(rung) | {"points": [dataclasses.asdict(p) for p in own]}
                for rung, own in self.points.items()
            ],
            "laws": {name: law.plain() for name, law in self.laws.items()},
            "optimal_exponent": self.laws["both"].law.optimal_exponent if "both" in self.laws else None,
            "prediction": dict(self.prediction),
            "isoflops": None if self.isoflops is None else self.isoflops.plain(),
            "notes": list(self.notes),
            "held_out": dataclasses.asdict(self.held_out) | {"loss": self.loss, "miss": self.miss},
        }

    def report(self) -> StudyReport:
        lines = []
        for name, fitted in self.laws.items():
            found = {key: fitted.interval(key) for key in ("floor", "alpha", "beta") if getattr(fitted.law, key)}
            words = [
                f"{key} {getattr(fitted.law, key):.3g} ({low:.3g} … {high:.3g})" for key, (low, high) in found.items()
            ]
            lines.append(f"law by {name}: {', '.join(words)}")
        steps = sorted({rung.steps for rung in self.points if rung.flops is None})
        series = [Series(f"{count:,} steps", self._points(count)) for count in steps]
        chart = Chart("loss by parameters", series, "parameters", "log", "log", wide=True)
        if self.isoflops is not None:
            lines += tell_isoflops(self.isoflops)
        runs = Chapter("Runs", [self.table(), *lines, *self.notes, chart], "scaling")
        return StudyReport("Scaling", [runs, Chapter("Prediction", [self.sentence()])])

    def _points(self, steps: int) -> list[tuple[float, float]]:
        """Parameters and losses of the runs of this many steps."""
        return [(p.parameters, p.loss) for rung, own in self.points.items() if rung.steps == steps for p in own]


def tell_isoflops(found: IsoFlops) -> list[str]:
    """The best size of every budget, in words."""
    out = [
        f"{each.flops:.3g} FLOPs: {each.parameters:,.0f} parameters are best, loss {each.loss:.4f}"
        for each in found.best
    ]
    out += [f"{flops:.3g} FLOPs: no best size: {why}" for flops, why in found.skipped.items()]
    if found.exponent is not None and found.interval is not None:
        low, high = found.interval
        out.append(f"the best size grows as FLOPs^{found.exponent:.2f} (95 % interval {low:.2f} … {high:.2f})")
    return out


def run(
    grid: Grid,
    recipes: Sequence[str],
    options: StudyOptions,
    *,
    widths: Sequence[int] = (32, 48, 64, 96),
    steps: Sequence[int] = (250, 500, 1000, 2000),
    held_out: tuple[int, int] = (128, 6000),
    flops: Sequence[float] = (),
) -> ScalingResult:
    """Train a ladder of `widths` and `steps`, fit laws, predict the `held_out` width and steps, and train that.

    flops  budgets of FLOPs, each of which every width is also trained with
    """
    if len(recipes) != 1:
        raise SpecError(f"a ladder is of one recipe, got {len(recipes)}")
    seeds = options.seeds_for(1)
    comparer = Comparer(grid, Terms(2, metric="loss"), options, "scaling")
    (base,) = comparer.prepare([NamedRecipe(recipes[0], recipes[0], options.set)])
    ladder, last = [Rung(width, count) for width in widths for count in steps], Rung(*held_out)
    equal = [Rung(width, _steps(base, width, budget), budget) for budget in flops for width in widths]
    rungs = [*ladder, *equal]
    largest = max(_flops(base, rung) for rung in rungs)
    if _flops(base, last) < LARGER * largest:
        raise SpecError(
            f"the held-out run should take at least {LARGER:g} times the FLOPs of the largest run of the ladder, got "
            f"{_flops(base, last) / largest:.2g} times; raise its width or steps"
        )
    cells = {rung: [_cell(comparer, base, rung, seed) for seed in range(1, seeds + 1)] for rung in (*rungs, last)}
    forecast(
        grid, _time(grid, base, cells), what=f"{len(rungs)} sizes and one held out", minutes=options.minutes,
        remedy="lower the widths or steps",
    )  # fmt: skip
    found = {each.cell.key: each for each in grid.run([cell for rung in rungs for cell in cells[rung]])}
    points = {rung: [_point(base, rung, found[cell.key]) for cell in cells[rung]] for rung in rungs}
    laws, notes = _fit(points)
    budgets = {b: [p for rung in equal if rung.flops == b for p in points[rung]] for b in flops}
    tokens = max(p.tokens / r.steps for r, own in points.items() for p in own) * last.steps
    value, low, high = laws["both"].predict(_parameters(base, last), tokens)
    prediction = _commit(grid, last, {"loss": value, "low": low, "high": high})
    grid.say(
        f"predicted loss of width {last.width} after {last.steps:,} steps: {prediction['loss']:.4f}; now it is trained"
    )
    came = [_point(base, last, each) for each in grid.run(cells[last])]
    loss = sum(p.loss for p in came) / len(came)
    return ScalingResult(points, laws, prediction, last, loss, fit_isoflops(budgets) if budgets else None, notes)


def _fit(points: Mapping[Rung, Sequence[RunPoint]]) -> tuple[dict[str, FittedLaw], list[str]]:
    """The law of all runs, that of the longest by parameters, that of the widest by tokens; and why one is missing."""
    ladder = [rung for rung in points if rung.flops is None]
    longest, widest = max(rung.steps for rung in ladder), max(rung.width for rung in ladder)
    chosen = {
        "both": list(points),
        "parameters": [rung for rung in ladder if rung.steps == longest],
        "tokens": [rung for rung in ladder if rung.width == widest],
    }
    laws, notes = dict[str, FittedLaw](), list[str]()
    for by, rungs in chosen.items():
        try:
            laws[by] = fit_law([point for rung in rungs for point in points[rung]], by=by)
        except SpecError as error:
            if by == "both":
                raise
            notes.append(f"no law by {by} alone: {error}")
    return laws, notes


def _time(grid: Grid, base: Method, cells: Mapping[Rung, Sequence[Cell]]) -> list[Work]:
    """The cells with the time that they take; a width is timed once."""
    seconds, work = dict[int, float](), list[Work]()
    for rung, own in cells.items():
        method = _resize(base, rung)
        if grid.missing(own):
            if rung.width not in seconds:
                seconds[rung.width] = time_recipe(method.recipe, method.corpus).seconds_per_step
            method.timing = Timing(rung.steps, seconds[rung.width])
        work.append(Work(method, own))
    return work


def _commit(grid: Grid, rung: Rung, prediction: dict[str, float]) -> dict[str, float]:
    """Write the prediction down before its run starts; one that was written stays."""
    make_folder(DISK, grid.folder)
    path = grid.folder / PREDICTION
    known: dict[str, dict[str, float]] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    key = f"width {rung.width}, {rung.steps} steps"
    if key not in known:
        write_file(path, json.dumps(known | {key: prediction}, indent=2))
    return known.get(key, prediction)


def _resize(method: Method, rung: Rung) -> Method:
    changes = set_width(method.recipe, rung.width) | {"train.steps": rung.steps, "train.epochs": None}
    return dataclasses.replace(method, recipe=change(method.recipe, changes), timing=None)


def _cell(comparer: Comparer, method: Method, rung: Rung, seed: int) -> Cell:
    cell = comparer.cell(_resize(method, rung), seed, "loss")
    return Cell(f"width {rung.width}, {rung.steps} steps, seed {seed}", cell.job, cell.settings)


def _point(method: Method, rung: Rung, found: CellResult) -> RunPoint:
    if found.error:
        raise SpecError(f"{found.cell.name} has no result: {found.error}")
    loss = float(found.result["tests"][TEST]["scores"]["loss"])
    return RunPoint(float(_parameters(method, rung)), float(found.result["tokens"]), loss)


def _parameters(method: Method, rung: Rung) -> int:
    return _resize(method, rung).parameters


def _flops(method: Method, rung: Rung) -> float:
    """Training FLOPs of a run."""
    return rung.steps * _flops_per_step(method, rung.width)


def _flops_per_step(method: Method, width: int) -> float:
    sized = _resize(method, Rung(width, 1))
    return sized.flops * int(sized.recipe.train.batch_tokens)


def _steps(method: Method, width: int, flops: float) -> int:
    """The steps that a budget allows."""
    return max(1, round(flops / _flops_per_step(method, width)))
