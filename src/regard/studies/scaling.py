"""A ladder of models, a scaling law, and a prediction.

Every width is trained for every number of steps. The law is fitted to these runs, and the loss of a larger run is predicted and
written down before that run starts; by how much it misses is the result.
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
from regard.studies.grid import Cell, CellResult, Grid
from regard.studies.methods import Method, NamedRecipe, Terms
from regard.studies.preparation import change, cost_of, model_of, set_width
from regard.studies.scaling_law import FittedLaw, RunPoint, fit_law
from regard.studies.study_options import StudyOptions
from regard.studies.study_report import Chapter, Chart, Reporting, StudyReport

LARGER = 4.0
"""The held-out run takes at least so many times the FLOPs of the largest run of the ladder."""
PREDICTION = "prediction.json"


@dataclasses.dataclass(frozen=True)
class Rung:
    """One size of the ladder."""

    width: int
    steps: int


@dataclasses.dataclass(frozen=True)
class ScalingResult(Reporting):
    """The runs, the laws, and the prediction beside what came."""

    points: Mapping[Rung, Sequence[RunPoint]]
    laws: Mapping[str, FittedLaw]
    prediction: Mapping[str, float]
    held_out: Rung
    loss: float

    @property
    def miss(self) -> float:
        """How far the prediction was off, relative to the loss that came."""
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
        steps = sorted({rung.steps for rung in self.points})
        series = [Series(f"{count:,} steps", self._points(count)) for count in steps]
        chart = Chart("loss by parameters", series, "parameters", "log", "log", wide=True)
        runs = Chapter("Runs", [self.table(), *lines, chart], "scaling")
        return StudyReport("Scaling", [runs, Chapter("Prediction", [self.sentence()])])

    def _points(self, steps: int) -> list[tuple[float, float]]:
        """Parameters and losses of the runs of this many steps."""
        return [(p.parameters, p.loss) for rung, own in self.points.items() if rung.steps == steps for p in own]


def run(
    grid: Grid,
    recipes: Sequence[str],
    options: StudyOptions,
    *,
    widths: Sequence[int] = (32, 48, 64, 96),
    steps: Sequence[int] = (500, 1000, 2000),
    held_out: tuple[int, int] = (128, 4000),
) -> ScalingResult:
    """Train a ladder of `widths` and `steps`, fit laws, predict the `held_out` width and steps, and train that."""
    if len(recipes) != 1:
        raise SpecError(f"a ladder is of one recipe, got {len(recipes)}")
    seeds = options.seeds_for(1)
    comparer = Comparer(grid, Terms(2, metric="loss"), options, "scaling")
    (base,) = comparer.prepare([NamedRecipe(recipes[0], recipes[0], options.set)])
    rungs, last = [Rung(width, count) for width in widths for count in steps], Rung(*held_out)
    largest = max(_flops(base, rung) for rung in rungs)
    if _flops(base, last) < LARGER * largest:
        raise SpecError(
            f"the held-out run should take at least {LARGER:g} times the FLOPs of the largest run of the ladder, got "
            f"{_flops(base, last) / largest:.2g} times; raise its width or steps"
        )
    cells = {rung: [_cell(comparer, base, rung, seed) for seed in range(1, seeds + 1)] for rung in (*rungs, last)}
    found = {each.cell.key: each for each in grid.run([cell for rung in rungs for cell in cells[rung]])}
    points = {rung: [_point(base, rung, found[cell.key]) for cell in cells[rung]] for rung in rungs}
    every = [point for own in points.values() for point in own]
    laws = {"both": fit_law(every)}
    tokens = max(p.tokens / r.steps for r, own in points.items() for p in own) * last.steps
    value, low, high = laws["both"].predict(_parameters(base, last), tokens)
    prediction = _commit(grid, last, {"loss": value, "low": low, "high": high})
    grid.say(
        f"predicted loss of width {last.width} after {last.steps:,} steps: {prediction['loss']:.4f}; now it is trained"
    )
    came = [_point(base, last, each) for each in grid.run(cells[last])]
    return ScalingResult(points, laws, prediction, last, sum(p.loss for p in came) / len(came))


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
    """FLOPs of a run, per token of a step."""
    sized = _resize(method, rung)
    return rung.steps * cost_of(model_of(sized.recipe, sized.corpus), sized.corpus.length).flops
