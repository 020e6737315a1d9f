"""Position codes on longer texts than in training.

Every position code learns the same algorithm (copying, or reversing) on texts of at most n characters and is tested on longer
and longer ones, up to 4n. Rotary positions are also tested with angles that were scaled after training.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from regard.errors import SpecError
from regard.metrics import METRICS
from regard.report.chart import Series
from regard.report.table import Cell, Table
from regard.spec import Plain
from regard.studies.compare import TEST, Comparer, CompareResult
from regard.studies.compare_report import tell_terms, tell_verdicts
from regard.studies.grid import CellResult, Grid
from regard.studies.methods import NamedRecipe, Terms
from regard.studies.preparation import Preparation
from regard.studies.study_options import StudyOptions
from regard.studies.study_report import Chapter, Chart, Reporting, StudyReport, mean_cell

TIMES = (1.0, 1.5, 2.0, 3.0, 4.0)
"""Test lengths, relative to the longest training text."""
BASELINE = "sinusoidal"
EMBEDDED = ("sinusoidal", "learned", "none")
"""Position codes that are added to the stream, or not at all."""
ATTENDED: dict[str, Plain] = {
    "rotary": {"kind": "rotary"},
    "ALiBi": {"kind": "alibi"},
    "T5": {"kind": "bucketed"},
    "Shaw": {"kind": "relative"},
    "XL": {"kind": "distance"},
}
"""Position codes inside the attention."""


def list_positions(recipe: str, set: Mapping[str, object], only: Sequence[str] = ()) -> list[NamedRecipe]:
    """One contender per position code; sinusoids are the baseline."""
    if unknown := [name for name in only if name not in (*EMBEDDED, *ATTENDED)]:
        raise SpecError(f"no position code {unknown[0]!r} in this study; there is {', '.join((*EMBEDDED, *ATTENDED))}")
    out = [NamedRecipe(name, recipe, {**set, "model.embed.position": {"kind": name}}) for name in EMBEDDED]
    for name, position in ATTENDED.items():
        inside = {f"model.{side}.position": position for side in ("encoder", "decoder")}
        out.append(NamedRecipe(name, recipe, {**set, "model.embed.position": None, **inside}))
    return [entry for entry in out if not only or entry.name in only or entry.name == BASELINE]


def list_tests(generate: Plain, n: int) -> dict[str, Plain]:
    """A test set for each range of lengths: up to n, and then only texts longer than the range before.

    The verdict is on all texts that are longer than n: on the longest alone, every score may be zero.
    """
    ends = [round(times * n) for times in TIMES]
    ranges = {name_range(before, end): (before, end) for before, end in pairwise([0, *ends])}
    seed = int(generate.get("seed", 1)) + 1_000_000
    return {
        name: {"data": {"generate": {**generate, "max_length": end, "seed": seed}}, "min_length": before + 1}
        for name, (before, end) in {TEST: (n, ends[-1]), **ranges}.items()
    }


def name_range(before: int, end: int) -> str:
    """The name of the test set of the texts longer than `before`, up to `end`."""
    return f"{before + 1} to {end}"


def list_scalings(n: int) -> dict[str, Plain]:
    """Ways to scale the angles of a trained rotary model, for texts four times as long."""
    factor = TIMES[-1]
    kinds: dict[str, Plain] = {
        "linear": {"kind": "linear", "factor": factor},
        "yarn": {"kind": "yarn", "factor": factor, "original_length": n + 2},
    }
    sides = ("encoder", "decoder")
    return {
        name: {"model": {side: {"position": {"rope_scaling": scaling}} for side in sides}}
        for name, scaling in kinds.items()
    }


@dataclasses.dataclass(frozen=True)
class LengthResult(Reporting):
    """Scores by length for every position code, and verdicts on all texts longer than in training."""

    compared: CompareResult
    n: int
    names: Mapping[str, str]
    """The range of lengths of each test set."""

    def scores(self, method: str, test: str) -> list[float]:
        """The scores of a position code on a test set, one per seed."""
        cells: Sequence[CellResult] = self.compared.cells[method]
        metric = self.compared.metric
        return [c.result["tests"][test]["scores"][metric] for c in cells if not c.error and test in c.result["tests"]]

    def table(self) -> Table:
        """A row per position code, a column per range of lengths: means over seeds."""
        rows = []
        for sample in self.compared.samples:
            row: dict[str, Cell] = {"positions": sample.name}
            row |= {label: mean_cell(self.scores(sample.name, test)) for test, label in self.names.items()}
            rows.append(row)
        return Table.of(rows)

    def plain(self) -> dict[str, object]:
        by_length = {
            sample.name: {label: self.scores(sample.name, test) for test, label in self.names.items()}
            for sample in self.compared.samples
        }
        return self.compared.plain() | {"trained_up_to": self.n, "by_length": by_length}

    def report(self) -> StudyReport:
        metric, samples = self.compared.metric, self.compared.samples
        lines = [Series(sample.name, self._points(sample.name)) for sample in samples]
        chart = Chart(f"{metric} by length", lines, "characters", wide=True, mark=float(self.n))
        lead = f"{metric} by length, trained on at most {self.n}:\n"
        chapters = [
            Chapter("By length", [lead, self.table(), chart], "length"),
            tell_verdicts(self.compared, "Verdicts on texts longer than in training"),
            tell_terms(self.compared),
        ]
        return StudyReport(f"Trained on at most {self.n}, tested on up to {round(TIMES[-1] * self.n)}", chapters)

    def _points(self, name: str) -> list[tuple[float, float]]:
        ranged = [
            (label, self.scores(name, test)) for test, label in self.names.items() if test != TEST and "," not in label
        ]
        found = [(float(label.split()[2]), float(np.mean(scores))) for label, scores in ranged if scores]
        return sorted(found)


def run(
    grid: Grid,
    recipes: Sequence[str],
    options: StudyOptions,
    *,
    n: int = 12,
    only: Sequence[str] = (),
    metric: str | None = None,
) -> LengthResult:
    """Train every position code on texts of at most `n` characters and test it on texts of up to 4n."""
    options.allow("length", "set", "seeds", "minutes")
    recipe = recipes[0] if recipes else "copy"
    longest = round(TIMES[-1] * n)
    settings = {"data.generate.max_length": n, "data.max_length": 2 * longest, **options.set}
    whole, _ = Preparation().complete(options.request(recipe, settings))
    generate = whole.data.get("generate")
    if not isinstance(generate, Mapping) or "max_length" not in generate:
        raise SpecError(
            f"the study of length needs generated pairs with a max_length, as the recipe copy; got {recipe}"
        )
    tests = list_tests(dict(generate), n)
    last = name_range(round(TIMES[-2] * n), longest)
    names = {name: name for name in tests if name != TEST} | {TEST: name_range(n, longest)}
    scaled = {f"scaled {name}": tests[last] | {"set": how, "for": ["rotary"]} for name, how in list_scalings(n).items()}
    terms = Terms(options.seeds_for(), metric=metric or "exact")
    comparer = Comparer(grid, terms, options, "length", {**tests, **scaled})
    entries = list_positions(recipe, settings, only)
    found = comparer.run(entries)
    if "rotary" in {entry.name for entry in entries}:
        names |= {name: f"{last}, {name}" for name in scaled}
    assert METRICS[found.metric].decodes
    return LengthResult(found, n, names)
