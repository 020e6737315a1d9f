"""Compare ways to train: does a change help, and at what cost.

Contenders are recipes, or one recipe with settings varied. They see the same data in the same order, with the same tokenizer
and the same seeds, and are matched in parameters, FLOPs, steps or time. Learning rates can be tuned first, for all of them
alike. Selection happens on validation data; the test data is used once per trained model.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from regard.digests import digest_code
from regard.errors import SpecError, UnknownName
from regard.files.folder import parse_json
from regard.files.storage import DISK, make_folder, write_file
from regard.metrics import METRICS
from regard.report.number import duration
from regard.spec import Plain
from regard.studies.forecast import Work, forecast
from regard.studies.grid import Cell, CellResult, Grid, tell_mixture
from regard.studies.match import Dial, match_size
from regard.studies.methods import Match, Method, NamedRecipe, Terms, check_tasks, find_rate, list_entries
from regard.studies.preparation import Preparation, Timing, change, cost_of, model_of, time_recipe
from regard.studies.significance import spend_alpha
from regard.studies.study_options import StudyOptions
from regard.studies.study_report import Reporting, StudyReport
from regard.studies.train_cell import read_items, read_test
from regard.studies.verdict import Rules, Sample, Verdict, judge
from regard.tasks.common.capabilities import eval_sets
from regard.tasks.common.losses import FORMULAS
from regard.tasks.common.task import EvalSet

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Learning rates that are tried, relative to the recipe's own."""
TUNING_SEED = 0
"""The seed of tuning runs, which no comparison uses."""
TEST = "test"


@dataclasses.dataclass(frozen=True)
class CompareResult(Reporting):
    """The result of a study: contenders with their scores, and a verdict for each but the first."""

    title: str
    metric: str
    terms: Terms
    methods: Sequence[Method]
    samples: Sequence[Sample]
    verdicts: Sequence[Verdict]
    cells: Mapping[str, Sequence[CellResult]]
    notes: Sequence[str]
    looks: Sequence[int]
    parallel: int = 1
    """Number of cells that ran at once."""
    basis: Plain = dataclasses.field(default_factory=dict)
    """The code and files that the cells were computed with, unless `mixed` says otherwise."""

    @property
    def mixed(self) -> list[str]:
        """Tell what must be known before the verdict: which cells rest on something else than the others."""
        return tell_mixture([cell for own in self.cells.values() for cell in own])

    def plain(self) -> dict[str, object]:
        """All results, ready for JSON. Only `timing` depends on the clock."""
        return {
            "study": self.title,
            "metric": self.metric,
            "terms": dataclasses.asdict(self.terms) | {"probes": list(self.terms.probes)},
            "notes": list(self.notes),
            "looks": list(self.looks),
            "contenders": [
                {
                    "name": method.name,
                    "parameters": method.parameters,
                    "training_flops_per_token": method.flops,
                    "steps": max((f.result["steps"] for f in self.cells[method.name] if not f.error), default=None),
                    "notes": method.notes,
                    "scores": list(sample.scores),
                    "mean": sample.mean if sample.scores else None,
                    "deviation": sample.deviation,
                    "failed": {str(seed): why for seed, why in sample.failed.items()},
                }
                for method, sample in zip(self.methods, self.samples, strict=True)
            ],
            "verdicts": [verdict.plain() for verdict in self.verdicts],
            "made_with": self.basis,
            "mixed": self.mixed,
            "timing": {name: [f.timing.get("seconds") for f in found] for name, found in self.cells.items()},
        }

    def report(self) -> StudyReport:
        from regard.studies.compare_report import report_comparison

        return report_comparison(self)


@dataclasses.dataclass(frozen=True)
class Started:
    """A comparison before its first run: its contenders, the metric that decides, and what was done to match them."""

    methods: Sequence[Method]
    metric: str
    notes: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Comparer:
    """Runs a comparison in a folder."""

    grid: Grid
    terms: Terms
    options: StudyOptions = StudyOptions()
    title: str = "compare"
    tests: Mapping[str, Plain] = dataclasses.field(default_factory=dict)
    """Further test sets, by name; the verdict is about the one named `test`. One may be `for` some contenders only."""

    def run(self, entries: Sequence[NamedRecipe]) -> CompareResult:
        """Prepare, match, say how long it takes, tune, train every contender with every seed, and judge."""
        started = self.start(entries)
        forecast(
            self.grid, self.list_work(started), what=f"{len(started.methods)} contenders", minutes=self.options.minutes,
            remedy="lower --seeds or train.steps", whole=self.terms.seeds,
        )  # fmt: skip
        return self.finish(started)

    def start(self, entries: Sequence[NamedRecipe]) -> Started:
        """Everything before training: complete recipes that can be compared, and are matched."""
        methods = self.prepare(entries)
        metric = self._metric(methods)
        make_folder(DISK, self.grid.folder)
        return Started(methods, metric, self._match(methods))

    def finish(self, started: Started) -> CompareResult:
        """Tune, train every contender with every seed, and judge."""
        methods, metric, notes = started.methods, started.metric, list(started.notes)
        if self.terms.tune:
            self._tune(methods, metric, notes)
        seeds = range(1, self.terms.seeds + 1)
        cells = {method.name: [self.cell(method, seed, metric) for seed in seeds] for method in methods}
        order = [cells[method.name][i] for i in range(len(seeds)) for method in methods]  # seed by seed: an early look
        found = {each.cell.key: each for each in self.grid.run(order)}
        finished = {name: [found[cell.key] for cell in own] for name, own in cells.items()}
        looks = self._look(methods, metric)
        tested = self._eval_sets(methods[0])
        samples = [_sample(name, own, metric, tested) for name, own in finished.items()]
        rules = Rules(
            metric, METRICS[metric].higher, spend_alpha(looks), len(looks), self.terms.paired, self.terms.delta
        )
        notes += self._say_test(methods[0])
        verdicts = judge(samples[0], samples[1:], rules)
        return CompareResult(
            self.title, metric, self.terms, methods, samples, verdicts, finished, notes, looks, self.grid.parallel,
            self._describe_basis(methods, finished),
        )  # fmt: skip

    def _describe_basis(self, methods: Sequence[Method], found: Mapping[str, Sequence[CellResult]]) -> Plain:
        """The code, files and processors of the whole comparison."""
        results = [each for own in found.values() for each in own]
        bases = [self.grid.ground(each.cell).basis for each in results]
        plugins = {name: digest for basis in bases for name, digest in basis["plugins"].items()}
        return {
            **bases[0],
            "plugins": dict(sorted(plugins.items())),
            "data": methods[0].corpus.dataset.fingerprint,
            "processors": sorted({each.processor for each in results if each.processor}),
            "threads": methods[0].recipe.train.threads,
            "device": self.options.device,
        }

    def split_refused(self, entries: Sequence[NamedRecipe]) -> tuple[list[NamedRecipe], dict[str, str]]:
        """The contenders that can be built, and why the others cannot; the baseline must be."""
        kept, refused, preparation = list[NamedRecipe](), dict[str, str](), Preparation()
        for entry in entries:
            try:
                recipe, data = preparation.complete(self.options.request(entry.recipe, entry.set))
                cost_of(model_of(recipe, data), 1)
                recipe.train.schedule.rate(1, total=recipe.train.steps, width=1)
                kept.append(entry)
            except SpecError as error:
                if entry is entries[0]:
                    raise
                refused[entry.name] = str(error)
        return kept, refused

    # ------------------------------------------------------------------------------------------------ before training

    def prepare(self, entries: Sequence[NamedRecipe]) -> list[Method]:
        """Complete every recipe, and check that the contenders can be compared."""
        check_tasks(entries)
        preparation, methods = Preparation(), list[Method]()
        for entry in entries:
            recipe, corpus = preparation.complete(self.options.request(entry.recipe, entry.set))
            if recipe.train.batch_tokens == "auto" or recipe.train.precision == "auto":
                raise SpecError(
                    f"{entry.name}: batch_tokens and precision cannot be 'auto' in a study; set them for all"
                )
            methods.append(Method(entry.name, recipe, corpus))
            recipe.model_spec(corpus.task.model_arguments(), methods[-1].notes)
        first = methods[0]
        for other in methods[1:]:
            if other.corpus.dataset.fingerprint != first.corpus.dataset.fingerprint:
                raise SpecError(
                    f"{first.name} and {other.name} have different data; give both the same with --data, or make the "
                    "data settings of their recipes equal"
                )
        return methods

    def _metric(self, methods: Sequence[Method]) -> str:
        task = methods[0].corpus.task
        metric = self.terms.metric or task.metrics[0]
        given = METRICS[metric].decodes or metric in (*FORMULAS, *task.metrics)
        scored = eval_sets(task, methods[0].corpus.dataset.valid) if METRICS[metric].decodes else []
        if not given or (METRICS[metric].decodes and not any(part.references for part in scored)):
            known = ", ".join(dict.fromkeys([*task.metrics, *FORMULAS]))
            raise SpecError(f"this task gives nothing that {metric} could score; choose one of {known} with --metric")
        prints = {m.corpus.task.tokenizer.fingerprint if m.corpus.task.tokenizer else "" for m in methods}
        if not METRICS[metric].decodes and len(prints) > 1:
            raise SpecError(
                f"the {metric} of models with different tokenizers cannot be compared; choose a metric of outputs with "
                "--metric, or the same data.tokenizer for all"
            )
        return metric

    def _match(self, methods: Sequence[Method]) -> list[str]:
        """Make the contenders alike in what is to be matched; returns what was done."""
        first, match = methods[0], self.terms.match
        if match == "steps":
            return ["matched: the same steps of the same batches; parameters and FLOPs are as the recipes say"]
        if match == "time":
            return self._match_time(methods)
        target = float(first.parameters) if match == "parameters" else first.flops
        for method in methods[1:]:
            corpus = method.corpus
            try:
                found = match_size(
                    method.recipe, lambda recipe: model_of(recipe, corpus), target, quantity=match,  # noqa: B023
                    length=corpus.length, dial=self.terms.resize,
                )  # fmt: skip
            except SpecError as error:
                raise SpecError(f"{method.name}: {error}") from None
            method.recipe = found.recipe
            if changed := found.before.changes(found.after):
                method.notes.append(f"{changed} ({found.error:+.2%} of the {match})")
        return [f"matched: {match} within 1 % of {first.name} ({target:,.0f}), by {self.terms.resize}"]

    def _match_time(self, methods: Sequence[Method]) -> list[str]:
        """Give every contender as many steps as take the baseline's time; the measurement is kept with the study."""
        path = self.grid.folder / "calibration.json"
        known = parse_json(path.read_bytes(), path) if path.exists() else {}
        for method in methods:
            key = _digest([method.recipe.plain(), digest_code(map(Path, self.grid.plugins))])
            if key not in known:
                timing = time_recipe(method.recipe, method.corpus)
                known[key] = {"name": method.name, "steps": timing.steps, "seconds_per_step": timing.seconds_per_step}
            method.timing = Timing(known[key]["steps"], known[key]["seconds_per_step"])
        write_file(path, json.dumps(known, indent=2))
        base = methods[0].timing
        assert base is not None
        for method in methods[1:]:
            assert method.timing is not None
            steps = max(1, round(base.seconds / method.timing.seconds_per_step))
            method.notes.append(f"{steps:,} steps instead of {method.timing.steps:,}")
            method.recipe = change(method.recipe, {"train.steps": steps, "train.epochs": None})
            method.timing = Timing(steps, method.timing.seconds_per_step)
        return [
            f"matched: training time of {methods[0].name} ({duration(base.seconds)} for its steps, measured at the start)"
        ]

    def list_work(self, started: Started) -> list[Work]:
        """The cells of each contender, tuning included, for the forecast."""
        seeds, work = range(1, self.terms.seeds + 1), list[Work]()
        for method in started.methods:
            tuning = self._tuning_cells(method, started.metric).values() if self.terms.tune else ()
            work.append(Work(method, [*(self.cell(method, seed, started.metric) for seed in seeds), *tuning]))
        return work

    # ------------------------------------------------------------------------------------------------ cells

    def cell(self, method: Method, seed: int, metric: str, tests: Mapping[str, Plain] | None = None) -> Cell:
        """One contender with one seed."""
        recipe = change(method.recipe, {"train.seed": seed})
        settings: Plain = {
            "recipe": json.loads(recipe.json()),
            "data": method.corpus.dataset.fingerprint,
            "tests": self._tests(method) if tests is None else tests,
            "metrics": list(dict.fromkeys([metric, *method.corpus.task.metrics])),
            "probes": list(self.terms.probes),
            "device": self.options.device,
        }
        return Cell(f"{method.name}, seed {seed}", "train", settings)

    def _tests(self, method: Method) -> Plain:
        chosen = {name: test for name, test in self.tests.items() if method.name in test.get("for", [method.name])}
        further = {name: {key: test[key] for key in test if key != "for"} for name, test in chosen.items()}
        return {TEST: self.test_set(method), **further}

    def test_set(self, method: Method) -> Plain:
        """The test data: files, newly generated examples, or the validation data if there is nothing else."""
        if TEST in self.tests:
            return self.tests[TEST]
        if self.options.test:
            return {"files": list(self.options.test)}
        generated = method.recipe.data.get("generate")
        if isinstance(generated, Mapping) and "seed" in generated:
            return {"data": {"generate": {**generated, "seed": int(generated["seed"]) + 1_000_000}}}
        return {}

    def _say_test(self, method: Method) -> list[str]:
        if self.test_set(method):
            return []
        return ["tested on the validation data, which also chose the checkpoints; give --test for data used once"]

    def _eval_sets(self, method: Method) -> list[EvalSet]:
        recipe, task = method.recipe.plain(), method.corpus.task
        return eval_sets(task, read_test(recipe, task, self.test_set(method)))

    def _tuning_cells(self, method: Method, metric: str) -> dict[float, Cell]:
        """A run for each learning rate, with a seed of its own and no test data."""
        path, rate = find_rate(method.recipe)
        out = {}
        for factor in FACTORS:
            tried = dataclasses.replace(method, recipe=change(method.recipe, {path: rate * factor}))
            cell = self.cell(tried, TUNING_SEED, metric, tests={})
            out[rate * factor] = Cell(f"{method.name}, rate {rate * factor:.3g}", cell.job, cell.settings)
        return out

    def _tune(self, methods: Sequence[Method], metric: str, notes: list[str]) -> None:
        """Give every contender the same search of learning rates, judged on validation data."""
        searches = {method.name: self._tuning_cells(method, metric) for method in methods}
        self.grid.run([cell for search in searches.values() for cell in search.values()])
        for method in methods:
            scores = {rate: self._valid_score(cell, metric) for rate, cell in searches[method.name].items()}
            if all(score is None for score in scores.values()):
                why = [found.error for cell in searches[method.name].values() if (found := self.grid.read(cell))]
                raise SpecError(f"{method.name}: every tuning run failed: {why[0]}")
            best = max((rate for rate in scores if scores[rate] is not None), key=lambda rate: scores[rate] or 0.0)
            edge = ", at the edge of the search" if best in (min(scores), max(scores)) else ""
            path, own = find_rate(method.recipe)
            method.recipe = change(method.recipe, {path: best})
            method.notes.append(f"learning rate {best:.3g} of {len(scores)} tried around {own:.3g}{edge}")
        notes.append(
            f"tuned: each contender tried {len(FACTORS)} learning rates with seed {TUNING_SEED}, judged on validation data"
        )

    def _valid_score(self, cell: Cell, metric: str) -> float | None:
        """The validation score of a tuning run, higher is better; None if it failed."""
        found = self.grid.read(cell)
        if found is None or found.error:
            return None
        score = float(found.result["valid"][metric])
        return score if METRICS[metric].higher else -score

    def _look(self, methods: Sequence[Method], metric: str) -> list[int]:
        """Record that the results of this many seeds are looked at; returns all looks so far, in order."""
        key = _digest(
            [metric, [change(m.recipe, {"train.seed": 0}).plain() for m in methods], self.test_set(methods[0])]
        )
        path = self.grid.folder / "looks.json"
        known = parse_json(path.read_bytes(), path) if path.exists() else {}
        looks = [int(seeds) for seeds in known.get(key, [])]
        if not looks or self.terms.seeds > looks[-1]:
            looks.append(self.terms.seeds)
            write_file(path, json.dumps(known | {key: looks}))
        return [seeds for seeds in looks if seeds <= self.terms.seeds]


def _sample(name: str, found: Sequence[CellResult], metric: str, sets: Sequence[EvalSet]) -> Sample:
    failed = {i + 1: each.error for i, each in enumerate(found) if each.error}
    good = [each.result["tests"][TEST] for each in found if not each.error]
    items = [read_items(tested, metric, sets) for tested in good]
    marks = [_digest([each.result["valid"], each.result["tests"]]) for each in found if not each.error]
    return Sample(name, items, [tested["scores"][metric] for tested in good], failed, marks)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def run(
    grid: Grid,
    recipes: Sequence[str],
    options: StudyOptions,
    *,
    vary: Sequence[str] = (),
    match: str = "steps",
    resize: str = "width",
    tune: str | None = None,
    metric: str | None = None,
    delta: float | None = None,
    paired: bool = False,
) -> CompareResult:
    """Compare recipes, or one recipe with settings varied (`vary=["model.norm=pre,post"]`). The first is the baseline.

    match    what is made equal: steps, parameters, flops or time; `resize` says by which dial, width or depth
    tune     "rate": every contender gets the same search of learning rates first
    delta    the largest difference that does not matter, in units of the metric
    paired   compare seed by seed; to be declared before the first look
    """
    if tune not in (None, "rate"):
        raise UnknownName("setting to tune", tune, ["rate"])
    if resize not in ("width", "depth"):
        raise UnknownName("way to resize", resize, ["width", "depth"])
    terms = Terms(options.seeds_for(), cast(Match, match), cast(Dial, resize), tune == "rate", metric, delta, paired)
    return Comparer(grid, terms, options).run(list_entries(recipes, vary, options.set))
