"""Scores of models on a test set, with intervals.

Every score of every model has a 95 % bootstrap interval over the test items, and every model after the first a paired
difference to the first. They say how much a score depends on which items were in the test set; they are about these trained
models, not about the methods by which they were trained.

A loss is per token, so it says little where the vocabulary does not cover the text: an unknown token is easy to predict. The
share of unknown tokens is a score beside it, and a warning above `MAX_UNKNOWN`. Models with different vocabularies are compared
in bits per byte, in which unknown characters are not free.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast, get_args

import numpy as np
from numpy.typing import NDArray

from regard.api import load
from regard.api.notes import Tell, log_note
from regard.api.run_texts import find_tag
from regard.api.trained_model import Model
from regard.data.pair_reader import OnBad
from regard.data.pairs import Pairs
from regard.digests import digest_files
from regard.errors import SpecError, UnknownName
from regard.files.folder import MANIFEST
from regard.machine import versions
from regard.metrics import METRICS, Metric
from regard.metrics.bootstrap import Difference, Interval, bootstrap, check_samples
from regard.metrics.class_metrics import SplitLabels, count_classes
from regard.metrics.items import CountedItems, Items, bits_per_byte, count_items, percentage
from regard.registry import kind_of
from regard.report.page import pre
from regard.report.table import Table
from regard.tasks.common.capabilities import (
    CountsBaselines,
    HasBaseline,
    ReadsPairs,
    eval_sets,
    list_tags,
    list_texts,
    require,
    supports,
)
from regard.tasks.common.losses import LossCounts, count_losses
from regard.tasks.common.task import Task
from regard.text.tokenizer import Coverage

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how many are done, and of how many."""
Covered = Mapping[bool, Sequence[Coverage]]
"""Coverage of each text: of those that a model should write (True) and of those that it reads (False)."""
BATCH = 256
"""Number of inputs between two reports of progress."""
MAX_UNKNOWN = 1.0
"""Percentage of unknown tokens above which scores come with a warning."""
SCOPE = "95 % intervals over test items: of these trained models, not of the methods"


SEED = 1
"""Seed of the bootstrap samples."""


@dataclass(frozen=True)
class ModelScores:
    """The scores of one model."""

    model: str
    scores: Mapping[str, Interval]
    differences: Mapping[str, Difference] = field(default_factory=dict)
    """To the first model, by metric; empty for the first."""
    classes: Sequence[Mapping[str, str | int | float]] = ()
    """Precision, recall and F1 of each class, if outputs are classes."""

    def plain(self) -> dict[str, object]:
        """All scores, ready for JSON."""
        out: dict[str, object] = {
            "model": self.model,
            "scores": {name: found.score for name, found in self.scores.items()},
            "intervals": {name: [found.low, found.high] for name, found in self.scores.items()},
        }
        if self.differences:
            out["differences"] = {name: found.plain() for name, found in self.differences.items()}
        return out | ({"classes": [dict(row) for row in self.classes]} if self.classes else {})


@dataclass(frozen=True)
class Evaluation:
    """The scores of all models on one test set."""

    data: str
    models: Sequence[ModelScores]
    signatures: Mapping[str, str]
    """The signature of each metric that has one, as sacreBLEU writes them."""
    pairs: int | None = None
    """The number of references, if outputs were scored."""
    made_with: Mapping[str, object] = field(default_factory=dict)
    """Versions, digests of models and data, and the seed of the bootstrap."""

    def plain(self) -> dict[str, object]:
        """All results, ready for JSON."""
        count = {} if self.pairs is None else {"pairs": self.pairs}
        models = [model.plain() for model in self.models]
        return {"data": self.data, **count, "models": models, "signatures": dict(self.signatures), **self.made_with}

    def render(self) -> str:
        """The results for people."""
        names = list(self.models[0].scores)
        rows = [(m.model, *(_render_score(name, m.scores[name]) for name in names)) for m in self.models]
        lines = [Table(("model", *names), tuple(rows)).markdown().rstrip(), ""]
        lines.append(
            f"on {self.data}" if self.pairs is None else f"{self.pairs:,} pair{'s' * (self.pairs != 1)} of {self.data}"
        )
        lines.append(SCOPE)
        lines += [f"{name}: {signature}" for name, signature in self.signatures.items()]
        for model in self.models:
            if model.classes:
                cells = tuple(
                    tuple(round(v, 2) if isinstance(v, float) else v for v in c.values()) for c in model.classes
                )
                head = (f"class, by {Path(model.model).name}", *list(model.classes[0])[1:])
                lines += ["", Table(head, cells).markdown().rstrip()]
        for model in self.models[1:]:
            lines += ["", f"{model.model} − {self.models[0].model}"] if model.differences else []
            lines += [_render_difference(name, gap) for name, gap in model.differences.items()]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.render()

    def _repr_html_(self) -> str:
        return pre(self.render())


def evaluate(
    models: str | Path | Model | Sequence[str | Path | Model],
    data: str | Path | Sequence[str | Path],
    *,
    metrics: Sequence[str] = (),
    beam: int | None = None,
    to: str | None = None,
    samples: int = 1000,
    device: str = "auto",
    set: Mapping[str, object] | None = None,
    on_bad: str | None = None,
    notify: Tell | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Score one model or several on a test set.

    models    model folders, run folders or loaded models
    data      files as for training: two text files, or one table of pairs
    metrics   names of scores; by default those of the task
    to        the target language of a many-to-many model
    samples   number of bootstrap samples for the intervals
    set       changes settings that no weight depends on
    on_bad    "error" or "drop": what happens to bad pairs
    notify    called with notes, such as inputs that are too long; by default they are logged
    progress  called with what is being done, how many are done, and of how many
    """
    given = [models] if isinstance(models, str | Path | Model) else list(models)
    files = [str(data)] if isinstance(data, str | Path) else [str(path) for path in data]
    check_samples(samples)
    if not given:
        raise SpecError("evaluate needs a model folder, got none")
    if not files:
        raise SpecError("eval needs data: two text files, or one .tsv, .csv or .jsonl file")
    for path in files:
        if not Path(path).exists():
            raise SpecError(f"there is no file or model folder {path}")
    chosen = [METRICS[name] for name in metrics]
    loaded = [each if isinstance(each, Model) else load(each, device=device, set=set) for each in given]
    names = [str(each.path if isinstance(each, Model) else each) for each in given]
    run = _Evaluator(names, loaded, files, on_bad, to, beam, samples, notify or log_note, progress or (lambda *_: None))
    return run.evaluate(chosen)


@dataclass(frozen=True)
class _Evaluator:
    names: Sequence[str]
    models: Sequence[Model]
    files: Sequence[str]
    on_bad: str | None
    to: str | None
    beam: int | None
    samples: int
    notify: Tell
    progress: Progress

    def evaluate(self, metrics: Sequence[Metric]) -> Evaluation:
        task = self.models[0].task
        raw = self._read(task)
        self._tell_dropped(raw)
        for name, model in zip(self.names[1:], self.models[1:], strict=True):
            self._check_comparable(task, raw, name, model.task)
        usual = [*task.metrics, *self._usual_beside(task, raw)]
        chosen = list(metrics) or [METRICS[name] for name in usual]
        sets = eval_sets(task, raw)
        references, sources = [r for each in sets for r in each.references], [s for each in sets for s in each.inputs]
        decoded = [metric for metric in chosen if metric.decodes]
        if decoded and not references:
            raise SpecError(
                f"{self.names[0]} gives no outputs that {decoded[0].kind} could score; use {', '.join(task.metrics)}"
            )
        items: list[dict[str, Items]] = []
        classes = []
        split = next((metric.labels for metric in decoded if metric.labels), None)
        for name, model in zip(self.names, self.models, strict=True):
            own = self._select_language(model, raw)
            covered = {side.written: side.tokenizer.count_unknown(side.texts) for side in list_texts(model.task, own)}
            self._tell_unknown(name, covered)
            found = self._count_losses(name, model, own, [m.kind for m in chosen if not m.decodes], covered)
            if decoded:
                outputs = self._run(name, model, own)
                found |= {metric.kind: metric.items(outputs, references, sources) for metric in decoded}
                classes.append([] if split is None else _count_classes(outputs, references, split))
            items.append({metric.kind: found[metric.kind] for metric in chosen})
        names = list(self.names)
        inputs = [given for each in eval_sets(task, raw) for given in each.inputs]
        if decoded == chosen and supports(task, HasBaseline):
            baseline, outputs = task.make_baseline(inputs)
            names.append(f"{baseline} (baseline)")
            items.append({metric.kind: metric.items(outputs, references) for metric in decoded})
            classes.append([])
        for baseline, counts in {} if decoded else self._count_baselines(task, raw, chosen).items():
            names.append(f"{baseline} (baseline)")
            items.append({metric.kind: counts.items(metric.kind) for metric in chosen})
        scores, differences = self._bootstrap(chosen, items)
        rows = [
            ModelScores(name, scores[i], differences[i], classes[i] if classes else ()) for i, name in enumerate(names)
        ]
        signatures = {metric.kind: metric.signature() for metric in chosen if metric.signature()}
        data = " + ".join(Path(path).name for path in self.files)
        made_with = {
            "versions": versions(),
            "fingerprints": {"data": digest_files(self.files), "models": self._digest_models()},
            "seed": SEED,
        }
        return Evaluation(data, rows, signatures, len(references) if decoded else None, made_with)

    def _digest_models(self) -> dict[str, str]:
        """The digest of each model folder: of its manifest, which holds that of every file."""
        places = {name: model.path for name, model in zip(self.names, self.models, strict=True)}
        return {
            name: digest_files([str(path / MANIFEST if (path / MANIFEST).exists() else path)])
            for name, path in places.items()
        }

    def _read(self, task: Task) -> object:
        """The test set as the task reads it."""
        if self.on_bad is None:
            return task.read_test(task.settings, self.files)
        if self.on_bad not in get_args(OnBad):
            raise UnknownName("way to treat bad pairs", self.on_bad, get_args(OnBad))
        return require(task, ReadsPairs).read_test_pairs(task.settings, self.files, cast(OnBad, self.on_bad))

    def _tell_dropped(self, raw: object) -> None:
        for part in raw if isinstance(raw, list) else ():
            for note in part.notes if isinstance(part, Pairs) else ():
                self.notify(note)
            for lost in part.dropped if isinstance(part, Pairs) else ():
                if lost.count:
                    self.notify(f"{part.name}: {lost}")

    def _check_comparable(self, task: Task, raw: object, name: str, other: Task) -> None:
        """Models can be compared if they have the same task, and their settings turn the data into the same test items."""
        if type(other) is not type(task):
            kinds = [kind_of(type(each)) for each in (task, other)]
            raise SpecError(
                f"{self.names[0]} and {name} cannot be compared: the task of one is {kinds[0]}, of the other {kinds[1]}"
            )
        if other.settings == task.settings:
            return
        asked = [
            [(each.inputs, each.references) for each in sets]
            for sets in (eval_sets(task, raw), eval_sets(other, self._read(other)))
        ]
        if asked[0] != asked[1]:
            raise SpecError(
                f"{self.names[0]} and {name} cannot be compared: their settings turn this data into different test items; "
                "evaluate them one by one, or make the settings equal with --set data.…"
            )

    def _select_language(self, model: Model, raw: object) -> object:
        """The test set with the tag of the target language: the one requested, that of each corpus, or none."""
        tag = None if self.to is None else find_tag(model, self.to)
        if not isinstance(raw, list) or (tag is None and list_tags(model.task)):
            return raw
        return [replace(part, tag=tag) if isinstance(part, Pairs) else part for part in raw]

    def _count_losses(
        self, name: str, model: Model, raw: object, kinds: Sequence[str], covered: Covered
    ) -> dict[str, Items]:
        """The items of scores that come with the loss."""
        found: dict[str, Items] = {}
        if "unknown_tokens" in kinds and covered:
            found["unknown_tokens"] = _count_unknown(covered.get(True, covered.get(False, [])))
        kinds = [kind for kind in kinds if kind not in found]
        if not kinds:
            return found
        examples = model.task.encode(raw)
        if examples.left_out:
            self.notify(
                f"the loss of {name} is over {len(examples):,} pairs: {examples.left_out:,} are too long for it"
            )
        counts = count_losses(
            model.task, model.engine.nets[0], examples, metrics=kinds,
            progress=lambda done, of: self.progress(f"loss of {name}", done, of),
        )  # fmt: skip
        if "bits_per_byte" in kinds and True in covered:
            found["bits_per_byte"] = _count_bits(counts.rows["loss"], covered[True])
        kinds = [kind for kind in kinds if kind not in found]
        if unknown := [kind for kind in kinds if kind not in counts.names]:
            raise SpecError(f"{name} has no {unknown[0]}; available: {', '.join(counts.names)}")
        return found | {kind: counts.items(kind) for kind in kinds}

    def _count_baselines(self, task: Task, raw: object, metrics: Sequence[Metric]) -> dict[str, LossCounts]:
        """The baselines of a task that have all of these scores."""
        if not supports(task, CountsBaselines):
            return {}
        found = task.count_baselines(self.models[0].task.encode(raw))
        return {name: LossCounts(rows) for name, rows in found.items() if all(m.kind in rows for m in metrics)}

    def _usual_beside(self, task: Task, raw: object) -> list[str]:
        """Scores that are reported beside those of a task: beside a loss of tokens, what makes it comparable."""
        out = ["perplexity"] if task.metrics == ("loss",) else []
        if sides := list_texts(task, raw) if {"loss", "perplexity"}.intersection(task.metrics) else []:
            out += [*(["bits_per_byte"] if any(side.written for side in sides) else []), "unknown_tokens"]
        return [kind for kind in out if kind not in task.metrics]

    def _tell_unknown(self, name: str, covered: Covered) -> None:
        """Warn of a test set that the vocabulary does not cover."""
        for written, rows in covered.items():
            share = _count_unknown(rows).score() if rows else 0.0
            if share > MAX_UNKNOWN:
                self.notify(
                    f"{share:.1f} % of the tokens that {name} {'should write' if written else 'reads'} are unknown to its "
                    "vocabulary: another language or script? A loss or perplexity leaves out what they stand for"
                )

    def _run(self, name: str, model: Model, raw: object) -> list[str]:
        """The best output for every input."""
        sets, out = eval_sets(model.task, raw), list[str]()
        of = sum(len(each.inputs) for each in sets)
        options = {} if self.beam is None else {"beam": self.beam}
        for each in sets:
            given = {**options, **vars(each.options)}
            batches = model.run_lazily(
                each.inputs, batch=BATCH, notify=lambda text: self.notify(f"{name}: {text}"), **given
            )
            for batch in batches:
                out += [outputs[0].text if outputs else "" for _, outputs in batch]
                self.progress(f"outputs of {name}", len(out), of)
        return out

    def _bootstrap(
        self, metrics: Sequence[Metric], items: Sequence[Mapping[str, Items]]
    ) -> tuple[list[dict[str, Interval]], list[dict[str, Difference]]]:
        """The interval of every score of every model, and the differences to the first model."""
        scores = [dict[str, Interval]() for _ in items]
        differences = [dict[str, Difference]() for _ in items]
        for metric in metrics:
            kind, each = metric.kind, [found[metric.kind] for found in items]
            paired = metric.decodes or self._has_same_tokens(each)
            if not paired and not metric.any_vocabulary:
                self._tell_incomparable(kind, [m.kind for m in metrics])
            together = paired or metric.any_vocabulary
            for group in [list(range(len(each)))] if together else [[i] for i in range(len(each))]:
                found = bootstrap(
                    [each[i] for i in group], higher=metric.higher, samples=self.samples, paired=paired,
                    progress=lambda done, of: self.progress(f"interval of {kind}", done, of),  # noqa: B023
                )  # fmt: skip
                for place, i in enumerate(group):
                    scores[i][kind] = found.scores[place]
                    if place:
                        differences[i][kind] = found.differences[0, place]
        return scores, differences

    def _has_same_tokens(self, items: Sequence[Items]) -> bool:
        """True if losses are over the same items and tokens."""
        prints = {each.task.tokenizer.fingerprint if each.task.tokenizer else "" for each in self.models}
        return len(prints) == 1 and len({len(each) for each in items}) == 1

    def _tell_incomparable(self, kind: str, others: Sequence[str]) -> None:
        instead = "; compare bits_per_byte" if "bits_per_byte" in others else ""
        self.notify(f"these models divide text into different tokens: their {kind} cannot be compared{instead}")


def _count_unknown(rows: Sequence[Coverage]) -> CountedItems:
    """The items of the share of unknown tokens."""
    return count_items([(row.unknown, row.tokens) for row in rows], percentage)


def _count_bits(losses: NDArray[np.float64], rows: Sequence[Coverage]) -> CountedItems:
    """The items of bits per byte: losses (items, 2) of tokens that stand for these texts."""
    size, unknown, tokens = (sum(getattr(row, name) for row in rows) for name in ("bytes", "unknown_bytes", "tokens"))
    tokens = max(tokens, int(losses[:, 1].sum()), 1)  # more, if texts have end marks; fewer, if some were too long
    formula = bits_per_byte(bytes_per_token=max(size, 1) / tokens, unknown_share=unknown / max(size, 1))
    return CountedItems(losses, formula)


def _count_classes(
    outputs: Sequence[str], references: Sequence[str], split: SplitLabels
) -> list[dict[str, str | int | float]]:
    """The scores of each class."""
    names = ("precision", "recall", "f1", "predicted", "true")
    return [
        {"class": each.name, **{name: getattr(each, name) for name in names}}
        for each in count_classes(outputs, references, split)
    ]


def _render_score(name: str, found: Interval) -> str:
    digits = 2 if METRICS[name].decodes else 4
    return f"{found.score:.{digits}f} ({found.low:.{digits}f} … {found.high:.{digits}f})"


def _render_difference(name: str, gap: Difference) -> str:
    digits = 2 if METRICS[name].decodes else 4
    return (
        f"{name}: {gap.difference:+.{digits}f} (95 % interval {gap.low:+.{digits}f} … {gap.high:+.{digits}f}, "
        f"not better in {100 * gap.not_better:.1f} % of the samples)"
    )
