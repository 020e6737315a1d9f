"""`regard eval`: the task's own scores, and for two models their difference with a paired bootstrap (Koehn 2004)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast, get_args

import regard
from regard.data.pair_reader import OnBad
from regard.data.pairs import Pairs
from regard.errors import SpecError, UnknownName
from regard.metrics import METRICS
from regard.metrics.bootstrap import bootstrap
from regard.metrics.class_metrics import SplitLabels, count_classes
from regard.report.table import Table
from regard.serialization.model_folder import identify_folder
from regard.tasks.common.capabilities import ReadsPairs, eval_sets, find_too_long, list_tags, require
from regard.tasks.common.losses import evaluate_loss
from regard.tasks.common.task import Task
from regard.verbs.command import say
from regard.verbs.run import language_tag


def is_model(path: str) -> bool:
    """Whether a folder is a model's or a run's; any other is data."""
    return identify_folder(path) is not None


def evaluate_models(
    paths: Sequence[str],
    files: Sequence[str],
    *,
    metrics: Sequence[str] = (),
    beam: int | None = None,
    to: str | None = None,
    samples: int = 1000,
    device: str = "auto",
    sets: Mapping[str, Any] | None = None,
    on_bad: str | None = None,
) -> dict[str, Any]:
    """Scores of one model, or of two and their difference, on one corpus; `sets` changes what no weight depends on."""
    if len(paths) > 2:
        raise SpecError(f"eval takes one or two model folders, got {len(paths)}: {', '.join(paths)}")
    if not files:
        raise SpecError("eval needs data: two text files, or one .tsv, .csv or .jsonl file")
    for path in files:
        if not Path(path).exists():
            raise SpecError(f"there is no file or model folder {path}")
    asked = [METRICS[name] for name in metrics]
    models = [regard.load(path, device=device, set=sets) for path in paths]
    task = models[0].task
    raw = _gathered(task, files, on_bad)
    for part in raw if isinstance(raw, list) else ():
        for lost in part.dropped if isinstance(part, Pairs) else ():
            if lost.count:
                say(f"{part.name}: {lost}")
    for path, model in zip(paths[1:], models[1:], strict=True):
        _demand_alike(paths[0], task, raw, path, model.task, lambda other: _gathered(other, files, on_bad))
    usual = (*task.metrics, *(["perplexity"] if task.metrics == ("loss",) else []))
    chosen = asked or [METRICS[name] for name in usual]
    plain, decoded = ([m for m in chosen if (not m.decodes) is wanted] for wanted in (True, False))
    found: dict[str, Any] = {"data": " + ".join(Path(path).name for path in files), "models": []}
    references = [text for trial in eval_sets(task, raw) for text in trial.references]
    if decoded and not references:
        raise SpecError(f"{paths[0]} writes nothing that {decoded[0].kind} could be of; see {', '.join(task.metrics)}")
    outputs = []
    for path, model in zip(paths, models, strict=True):
        own = _asked(model, raw, to)
        told = _likelihood(path, model, own) if plain else {}
        if unknown := [metric.kind for metric in plain if metric.kind not in told]:
            raise SpecError(f"there is no {unknown[0]} of what {path} does; there is {', '.join(told)}")
        scores = {metric.kind: told[metric.kind] for metric in plain}
        if decoded:
            outputs.append(_outputs(path, model, own, beam=beam))
            scores |= {metric.kind: metric.compute(outputs[-1], references) for metric in decoded}
        units = next((metric.labels for metric in decoded if metric.labels), None)
        classes = {} if units is None else {"classes": _classes(outputs[-1], references, units)}
        found["models"].append({"model": path, "scores": scores, **classes})
    if decoded:
        found["pairs"] = len(references)
    found["signatures"] = {metric.kind: metric.signature() for metric in chosen if metric.signature()}
    if len(outputs) == 2:
        found["difference"] = {}
        for metric in decoded:
            both = [metric.items(each, references) for each in outputs]
            gap = bootstrap(both, higher=metric.higher, samples=samples).differences[0, 1]
            found["difference"][metric.kind] = gap.plain()
    return found


def _gathered(task: Task, files: Sequence[str], on_bad: str | None) -> Any:
    """The corpus as the task reads it."""
    if on_bad is None:
        return task.read_test(task.settings, files)
    if on_bad not in get_args(OnBad):
        raise UnknownName("way with bad pairs", on_bad, get_args(OnBad))
    return require(task, ReadsPairs).read_test_pairs(task.settings, files, cast(OnBad, on_bad))


def _demand_alike(path: str, task: Task, raw: Any, second: str, other: Task, gathered: Callable[[Task], Any]) -> None:
    """Two models can be compared where both do the same task, and their settings make the same questions of the corpus."""
    if type(other) is not type(task):
        kinds = [type(t).__name__.lower() for t in (task, other)]
        raise SpecError(
            f"{path} and {second} cannot be compared: the task of one is {kinds[0]}, of the other {kinds[1]}"
        )
    if other.settings == task.settings:
        return
    asked = [
        [(t.inputs, t.references) for t in trials]
        for trials in (eval_sets(task, raw), eval_sets(other, gathered(other)))
    ]
    if asked[0] != asked[1]:
        raise SpecError(
            f"{path} and {second} cannot be compared: their settings make other questions of this corpus; "
            "evaluate them one by one, or set what differs alike with --set data.…"
        )
    if (task.target and task.target.fingerprint) != (other.target and other.target.fingerprint):
        say("these two cut text into tokens in different ways: their loss a token cannot be compared")


def _likelihood(path: str, model: regard.Model, raw: Any) -> dict[str, float]:
    """Loss and what else is counted, of all that the model has room for."""
    examples = model.task.encode(raw)
    if lost := getattr(examples, "left_out", 0):
        say(f"the loss of {path} is of {len(examples):,} pairs: {lost:,} are too long for it")
    return evaluate_loss(model.task, model.net, examples)


def _classes(outputs: Sequence[str], references: Sequence[str], split: SplitLabels) -> list[dict[str, Any]]:
    """What there is to tell of each class."""
    return [
        {
            "class": t.name,
            "precision": t.precision,
            "recall": t.recall,
            "f1": t.f1,
            "predicted": t.predicted,
            "true": t.true,
        }
        for t in count_classes(outputs, references, split)
    ]


def _asked(model: regard.Model, raw: Any, to: str | None) -> Any:
    """The corpus as this model is asked about it: for one language, for that of each part, or for the only one it writes."""
    tag = None if to is None else language_tag(model, to)
    if not isinstance(raw, list) or (tag is None and list_tags(model.task)):
        return raw
    return [replace(part, tag=tag) if isinstance(part, Pairs) else part for part in raw]


def _outputs(path: str, model: regard.Model, raw: Any, *, beam: int | None) -> list[str]:
    """What the model makes of every input."""
    out: list[str] = []
    for trial in eval_sets(model.task, raw):
        if cut := find_too_long(model.task, trial.inputs, trial.options):
            say(f"{path} reads only the beginning of {len(cut):,} sources, which are too long")
        options: dict[str, Any] = {} if beam is None else {"beam": beam}
        out += model.run(trial.inputs, **options, **vars(trial.options))
    return out


def told(found: dict[str, Any]) -> str:
    """The same for people."""
    names = list(found["models"][0]["scores"])
    rows = [
        (m["model"], *(round(m["scores"][n], 2 if METRICS[n].decodes else 4) for n in names)) for m in found["models"]
    ]
    table = Table(("model", *names), tuple(rows)).markdown().rstrip()
    lines = [table, "", f"{found['pairs']:,} pairs of {found['data']}" if "pairs" in found else f"on {found['data']}"]
    lines += [f"{name}: {signature}" for name, signature in found["signatures"].items()]
    for model in found["models"]:
        if rows := model.get("classes"):
            cells = tuple(tuple(round(v, 2) if isinstance(v, float) else v for v in row.values()) for row in rows)
            lines += [
                "",
                Table((f"class, by {Path(model['model']).name}", *list(rows[0])[1:]), cells).markdown().rstrip(),
            ]
    for name, gap in found.get("difference", {}).items():
        lines.append(
            f"{name}: second − first = {gap['difference']:+.2f} (95 % interval {gap['low']:+.2f} … {gap['high']:+.2f}, "
            f"not better in {100 * gap['not_better']:.1f} % of the samples)"
        )
    return "\n".join(lines)
