"""Modifications of a model, compared on every task.

Narang et al. (2021) found that most modifications of the Transformer do not transfer. Here eight of them are compared with the
plain recipe on each of several tasks; a combination that a part refuses is shown as refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from regard.errors import SpecError
from regard.model.model_spec import ModelSpec
from regard.nn.layers.feedforward import FeedForward
from regard.report.table import Cell, Table
from regard.studies.compare import Comparer, CompareResult, Started
from regard.studies.compare_report import tell_curves, tell_verdicts
from regard.studies.forecast import forecast
from regard.studies.grid import Grid
from regard.studies.methods import NamedRecipe, Terms
from regard.studies.model_parts import Changes, list_mixers, list_stacks
from regard.studies.preparation import Preparation, model_of
from regard.studies.study_options import StudyOptions
from regard.studies.study_report import Chapter, Reporting, StudyReport

BASELINE = "plain"
WINDOW = 8
"""Tokens on each side that sparse attention sees."""


def _each(path: str, value: object) -> Callable[[ModelSpec], Changes]:
    """Return the change of a setting in every stack."""
    return lambda spec: {f"{stack}.{path}": value for stack, _, _ in list_stacks(spec)}


def _attention(path: str, value: object) -> Callable[[ModelSpec], Changes]:
    """Return the change of a setting in every attention, that to the encoder included."""
    return lambda spec: {f"{mixer}.{path}": value for mixer, _ in list_mixers(spec)}


def _gate(spec: ModelSpec) -> Changes:
    """A gated feed-forward layer of two thirds of the width has as many parameters."""
    out: Changes = {}
    for path, _, block in list_stacks(spec):
        if isinstance(block.feed, FeedForward):
            gated = {"gated": True, "activation": "silu", "width": max(1, round(block.feed.width * 2 / 3))}
            out |= {f"{path}.block.feed.{name}": value for name, value in gated.items()}
    return out


def _rotate(spec: ModelSpec) -> Changes:
    return {"model.embed.position": None} | _each("position", {"kind": "rotary"})(spec)


MODIFICATIONS: dict[str, Callable[[ModelSpec], Changes]] = {
    "RMSNorm": _each("wiring.norm", {"kind": "rms_norm"}),
    "gated feed-forward": _gate,
    "rotary positions": _rotate,
    "one key head": _attention("kv_heads", 1),
    "normalized queries and keys": _attention("qk_norm", {"kind": "layer_norm"}),
    "sparse attention": _each("block.mix", {"kind": "local", "reach": WINDOW}),
    "linear attention": _each("block.mix", {"kind": "performer"}),
    "Muon": lambda spec: {"train.optimizer": {"kind": "muon"}},
}


@dataclasses.dataclass(frozen=True)
class TaskData:
    """One task of the study: a name, a recipe and its files."""

    name: str
    recipe: str
    files: tuple[str, ...] = ()


def parse_task(text: str) -> TaskData:
    """`translation=translate,train.en,train.de`: a name, a recipe and its files."""
    name, equals, rest = text.partition("=")
    recipe, *files = rest.split(",")
    if not equals or not name or not recipe or not all(files):
        raise SpecError(
            f"--task takes NAME=RECIPE,FILE,…, such as translation=translate,train.en,train.de; got {text!r}"
        )
    return TaskData(name, recipe, tuple(files))


@dataclasses.dataclass(frozen=True)
class TransferResult(Reporting):
    """For every task a comparison of the modifications with the plain recipe, and what was refused there."""

    compared: Mapping[str, CompareResult]
    refused: Mapping[str, Mapping[str, str]]
    names: Sequence[str]

    def words(self, name: str) -> dict[str, str]:
        """The verdict on a modification for each task."""
        out = {}
        for task, found in self.compared.items():
            known = {verdict.name: verdict.word for verdict in found.verdicts}
            out[task] = "refused" if name in self.refused[task] else str(known.get(name, "no result"))
        return out

    def overall(self, name: str) -> str:
        """The summary of a modification over all tasks."""
        words = list(self.words(name).values())
        tried = [word for word in words if word not in ("refused", "no result")]
        better, worse = tried.count("better"), tried.count("worse")
        if not tried:
            return "not possible here"
        if "preliminary" in tried:
            return "preliminary"
        if better == len(tried):
            return f"better on all {better} tasks" + (
                f", refused on {len(words) - better}" if len(words) > better else ""
            )
        if not better and not worse:
            return "no effect shown"
        return f"better on {better}, worse on {worse} of {len(tried)} tasks"

    def table(self) -> Table:
        rows = []
        for name in self.names:
            row: dict[str, Cell] = {"modification": name}
            for task, found in self.compared.items():
                gaps = {v.name: v.found.difference for v in found.verdicts if v.found is not None}
                word = self.words(name)[task]
                row[f"{task} ({found.metric})"] = f"{word} {gaps[name]:+.3g}" if name in gaps else word
            rows.append(row | {"overall": self.overall(name)})
        return Table.of(rows)

    def plain(self) -> dict[str, object]:
        return {
            "study": "transfer",
            "tasks": {task: found.plain() for task, found in self.compared.items()},
            "refused": {task: dict(refused) for task, refused in self.refused.items()},
            "overall": {name: self.overall(name) for name in self.names},
        }

    def report(self) -> StudyReport:
        refused = [
            f"{task}: {name} is refused: {why}" for task, own in self.refused.items() for name, why in own.items()
        ]
        chapters = [Chapter("Modifications by task", [self.table(), *refused])]
        for task, found in self.compared.items():
            chapters += [tell_verdicts(found, task), *tell_curves(found, f"-{task}")]
        return StudyReport("Which modifications transfer", chapters)


def run(
    grid: Grid,
    recipes: Sequence[str],
    options: StudyOptions,
    *,
    tasks: Sequence[str] = ("algorithm=copy",),
    only: Sequence[str] = (),
) -> TransferResult:
    """Compare `only` these modifications, or all, with the plain recipe on each task (`NAME=RECIPE,FILE,…`)."""
    if recipes:
        raise SpecError("the study of transfer names its recipes with --task NAME=RECIPE,FILE,…")
    options.allow("transfer", "set", "seeds", "minutes")
    if unknown := [name for name in only if name not in MODIFICATIONS]:
        raise SpecError(f"no modification {unknown[0]!r}; there is {', '.join(MODIFICATIONS)}")
    names = [name for name in MODIFICATIONS if not only or name in only]
    terms = Terms(options.seeds_for())
    started, refused = list[tuple[str, Comparer, Started]](), dict[str, Mapping[str, str]]()
    for task in map(parse_task, tasks):
        own = dataclasses.replace(options, data=task.files)
        comparer = Comparer(grid, terms, own, f"transfer, {task.name}")
        recipe, data = Preparation().complete(own.request(task.recipe))
        spec = model_of(recipe, data)
        entries = [NamedRecipe(BASELINE, task.recipe, options.set)]
        entries += [NamedRecipe(name, task.recipe, {**options.set, **MODIFICATIONS[name](spec)}) for name in names]
        kept, refused[task.name] = comparer.split_refused(entries)
        started.append((task.name, comparer, comparer.start(kept)))
    forecast(
        grid, [work for _, comparer, each in started for work in comparer.list_work(each)],
        what=f"{len(names)} modifications of {len(started)} tasks", minutes=options.minutes,
        remedy="lower --seeds or train.steps, or leave out a --task", whole=terms.seeds,
    )  # fmt: skip
    compared = {name: comparer.finish(each) for name, comparer, each in started}
    return TransferResult(compared, refused, names)
