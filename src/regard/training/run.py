"""A run from beginning to end: read the data, choose what was left open, train, leave a folder anybody can use."""

from __future__ import annotations

import dataclasses
import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from regard.data.sources import Corpus
from regard.errors import CheckpointError, Interrupted, SpecError
from regard.folder import Folder, read_folder, write_folder
from regard.machine import keep_large_blocks, machine, precision
from regard.model.count import cost
from regard.model.model import Net
from regard.model.show import tree
from regard.report.run import RunFacts, run_report
from regard.tasks import find
from regard.tasks.task import Raw, Task
from regard.training.checkpoint import Checkpoints
from regard.training.export import CONFIG, card, export, metric_signatures, restore, versions, weight_faults
from regard.training.lock import RunLock
from regard.training.log import Log, read_log
from regard.training.loop import Data, Trainer
from regard.training.progress import Progress
from regard.training.recipe import Recipe, merged, parse_yaml, read_recipe, set_path
from regard.training.stop import Stop

RECIPE, LOG, FACTS, REPORT = "recipe.yaml", "log.jsonl", "run.json", "report.html"


@dataclasses.dataclass(frozen=True)
class Order:
    """What the user asked for."""

    recipe: str | Mapping[str, Any]
    data: Sequence[str] = ()
    valid: Sequence[str] = ()
    set: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    start: str | None = None
    """A model folder whose weights to start from."""
    out: str | None = None
    fresh: bool = False
    device: str = "auto"
    quiet: bool = False
    tensorboard: bool = False

    @property
    def folder(self) -> Path:
        name = self.recipe if isinstance(self.recipe, str) else "run"
        return Path(self.out or f"runs/{Path(name).stem}")

    @property
    def command(self) -> str:
        """The command line that says the same."""
        words = ["regard", "train", self.recipe if isinstance(self.recipe, str) else "RECIPE", *self.data]
        for flag, values in (("--valid", self.valid), ("--set", [f"{k}={_said(v)}" for k, v in self.set.items()])):
            words += [w for value in values for w in (flag, value)]
        words += ["--from", self.start] if self.start else []
        words += ["--out", self.out] if self.out else []
        words += ["--device", self.device] if self.device != "auto" else []
        return shlex.join(words)


def execute(order: Order) -> Path:
    """Train as ordered, resuming if the run folder holds a beginning; gives the folder of the finished model."""
    folder = order.folder
    asked = _asked(order)
    folder.mkdir(parents=True, exist_ok=True)
    with RunLock(folder):
        if order.fresh:
            _clear(folder)
        return _Run(order, folder, asked).execute()


def device_of(asked: str) -> str:
    """`auto` is the fastest device torch finds here."""
    if asked != "auto":
        return asked
    return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"


class _Run:
    def __init__(self, order: Order, folder: Path, asked: dict[str, Any]) -> None:
        self.order, self.folder, self.asked = order, folder, asked
        self.progress = Progress(1, quiet=order.quiet)
        self.device = device_of(order.device)

    def execute(self) -> Path:
        kind = find(str(self.asked.get("task")))
        Recipe.parse(merged({"train": {"epochs": 1}}, {k: v for k, v in self.asked.items() if k != "advise"}))
        settings = kind.Settings.parse(self.asked.get("data", {}))
        raw = kind.read(settings, int(self.asked.get("train", {}).get("seed", 1)))
        for line in raw.said:
            self.progress.say(line)
        self.recipe = self._decide(kind, settings, raw)
        self.facts: dict[str, Any] = {"fingerprint": raw.fingerprint, "command": self.order.command, **versions()}
        self.facts |= {"threads": self.recipe.train.threads or torch.get_num_threads(), "start": self.order.start}
        self._agree()
        torch.set_num_threads(self.facts["threads"])
        keep_large_blocks()
        task = self._task(kind, raw)
        trainer = self._trainer(task, raw)
        return self._train(trainer, task, raw)

    # ------------------------------------------------------------------------------------------------ deciding

    def _decide(self, kind: type[Task], settings: Any, raw: Raw) -> Recipe:
        """The whole recipe: what the data advises, under what was asked for."""
        whole = Recipe.parse(self.asked) if not self.asked.get("advise", False) else None
        if whole is None:
            advice = kind.advise(settings, raw)
            asked = {k: v for k, v in self.asked.items() if k != "advise"}
            for reason in advice.reasons:
                self.progress.say(f"chosen: {reason}")
            advised = {"train": advice.recipe["train"]} if self.order.start else advice.recipe
            whole = Recipe.parse(merged(advised, asked))
        return dataclasses.replace(whole, data=kind.Settings.parse(whole.data).plain())

    def _agree(self) -> None:
        """Refuse to go on with another recipe or corpus than the run began with."""
        path, before = self.folder / RECIPE, self.folder / FACTS
        if not path.exists() or not before.exists():
            path.write_text(self.recipe.yaml(), encoding="utf-8")
            before.write_text(json.dumps(self.facts, indent=2), encoding="utf-8")
            return
        old, new = parse_yaml(path.read_text("utf-8"), str(path)), json.loads(self.recipe.json())
        changed = _differences(old, new)
        facts = json.loads(before.read_text("utf-8"))
        if facts["fingerprint"] != self.facts["fingerprint"]:
            changed.append("the corpus is not the one this run began with")
        changed += [
            f"{name}: {facts.get(name)} -> {self.facts[name]}"
            for name in ("threads", "torch", "start")
            if facts.get(name) != self.facts[name]
        ]
        if changed:
            raise SpecError(
                f"{self.folder} was begun with another recipe or corpus: {'; '.join(changed)}. "
                "Take that back, choose another --out, or start over with --fresh"
            )

    def _task(self, kind: type[Task], raw: Raw) -> Task:
        """The task with its vocabulary: of the model to start from, or the run's own, learned once and kept."""
        settings, kept = kind.Settings.parse(self.recipe.data), self.folder / "vocabulary"
        if self.order.start:
            return kind.load(settings, model_folder(self.order.start).files)
        if kept.exists():
            return kind.load(settings, read_folder(kept).files)
        task = kind.prepare(settings, raw)
        write_folder(kept, task.files())
        return task

    def _trainer(self, task: Task, raw: Raw) -> Trainer:
        train = self.recipe.train
        net = self._net(task)
        torch.manual_seed(train.seed)
        data = Data(task.encode(raw.train), task.encode(raw.valid), task.trials(raw.valid))
        log = Log(self.folder / LOG, tensorboard=self.folder / "tensorboard" if self.order.tensorboard else None)
        checkpoints = Checkpoints(self.folder / "checkpoints", keep=train.keep)
        how = precision(train.precision, self.device)
        return Trainer(net, task, data, train, checkpoints=checkpoints, log=log, bf16=how == "bfloat16")

    def _net(self, task: Task) -> Net:
        net = self.recipe.model_spec(task.facts()).build(self.recipe.train.seed)
        if self.order.start:
            tensors = model_folder(self.order.start).tensors()
            faults = weight_faults({k: tuple(v.shape) for k, v in net.named_parameters()}, tensors)
            if faults:
                raise SpecError(f"the model asked for cannot start from {self.order.start}: {'; '.join(faults)}")
            with torch.no_grad():
                for name, parameter in net.named_parameters():
                    parameter.copy_(tensors[name])
        return net.to(self.device)

    # ------------------------------------------------------------------------------------------------ training

    def _train(self, trainer: Trainer, task: Task, raw: Raw) -> Path:
        said = trainer.resume()
        first = not said
        with Stop() as stop, Progress(trainer.total, trainer.now.step, quiet=self.order.quiet) as progress:
            self.progress = progress
            for line in said or self._opening(trainer, raw):
                progress.say(line)
            if first:
                trainer.log.write(
                    "start", 0, parameters=self._parameters(trainer.net), total=trainer.total, **self.facts
                )
            if not trainer.now.finished:
                done = trainer.fit(stop, progress, on_better=lambda: self._export("best", trainer, task, None))
                if not done:
                    raise Interrupted(
                        f"stopped at step {trainer.now.step} of {trainer.total}, saved; to go on: {self.order.command}",
                        stop.asked or 2,
                    )
            final = self.folder / "final"
            if not (final / "manifest.json").exists():
                self._finish(trainer, task)
            scores = read_log(self.folder / LOG)[-1].get("scores", {})
            progress.say("done: " + "  ".join(f"{k} {v:.4g}" for k, v in scores.items()) + f"  in {final}")
        self._report(trainer, raw)
        trainer.log.close()
        return final

    def _opening(self, trainer: Trainer, raw: Raw) -> list[str]:
        count, kind = self._parameters(trainer.net), "bfloat16" if trainer.bf16 else "float32"
        where = f"{self.facts['threads']} threads of {machine().processor}" if self.device == "cpu" else self.device
        return [
            f"model: {count:,} parameters, {kind}, on {where}",
            f"training: {trainer.total:,} steps, {len(trainer.data.train):,} examples; run folder {self.folder}",
        ]

    def _finish(self, trainer: Trainer, task: Task) -> None:
        """The model to keep: the average where one was asked for, otherwise the best."""
        steps = [step for step, _ in trainer.now.snapshots]
        if steps:
            weights = trainer.snapshots.mean(steps)
        else:
            weights = dict(restore(read_folder(self.folder / "best"))[0].named_parameters())
        with trainer.weights(weights):
            scores = trainer.evaluate(self.recipe.decode)
            examples = _examples(trainer)
            self._export("final", trainer, task, scores)
        trainer.log.write("examples", trainer.now.step, rows=examples)
        trainer.log.write("done", trainer.now.step, scores=scores, seconds=round(trainer.now.seconds, 3))

    def _export(self, name: str, trainer: Trainer, task: Task, scores: Mapping[str, float] | None) -> None:
        facts = {
            "recipe": json.dumps(json.loads(self.recipe.json()), ensure_ascii=False),
            "step": trainer.now.step,
            **self.facts,
        }
        title = f"{self.folder.name}: a {self.recipe.task} model"
        text = card(title, scores or {}, metric_signatures(task.metrics) if scores else {}, facts)
        export(
            self.folder / name, task=task, name=self.recipe.task, net=trainer.net, search=self.recipe.decode,
            weights=dict(trainer.net.named_parameters()), card=text,
        )  # fmt: skip

    def _report(self, trainer: Trainer, raw: Raw) -> None:
        log = read_log(self.folder / LOG)
        examples: list[Any] = next((e["rows"] for e in reversed(log) if e["event"] == "examples"), [])
        facts = {
            "command": self.facts["command"],
            "versions": versions(),
            "parameters": self._parameters(trainer.net),
            "device": self.device,
        }
        run = RunFacts(self.folder.name, log, self.recipe.yaml(), tree(trainer.net), examples, raw.facts, facts)
        (self.folder / REPORT).write_text(run_report(run), encoding="utf-8")

    def _parameters(self, net: Net) -> int:
        return cost(net, 1).parameters


def model_folder(path: str | Path) -> Folder:
    """A model folder, or the best one of a run folder: final, else best."""
    path = Path(path)
    for name in ("final", "best"):
        if (path / name / "manifest.json").exists():
            return read_folder(path / name)
    if (path / RECIPE).exists():
        raise CheckpointError(f"{path} is a run that has not validated yet; let it train a little longer")
    return read_folder(path)


def _asked(order: Order) -> dict[str, Any]:
    """The recipe with the command line's files and settings laid over it."""
    asked = read_recipe(order.recipe) if isinstance(order.recipe, str) else merged(order.recipe)
    if order.data:
        corpora = [Corpus(paths=tuple(order.data)).plain()]
        asked = merged(asked, {"data": {"train": corpora, "valid": []}})
    if order.valid:
        asked = merged(asked, {"data": {"valid": [Corpus(paths=tuple(order.valid)).plain()]}})
    if order.start:
        asked = {**merged(asked, {"data": _vocabulary_settings(order.start)}), "model": _whole_model(order.start)}
    for path, value in order.set.items():
        asked = merged(asked, set_path(path, value))
    return asked


def _whole_model(path: str) -> dict[str, Any]:
    """The model section of a run that starts from another model: that model as it is."""
    return {"spec": model_folder(path).json(CONFIG)["model"]}


def _vocabulary_settings(path: str) -> dict[str, Any]:
    """Settings that go with the vocabulary, which a model keeps for life."""
    settings = model_folder(path).json(CONFIG)["settings"]
    return {name: settings[name] for name in ("tokenizer", "joint", "longest") if name in settings}


def _examples(trainer: Trainer, count: int = 12) -> list[dict[str, Any]]:
    outputs = iter(trainer.outputs)
    rows: list[dict[str, Any]] = []
    for trial in trainer.data.trials:
        for source, reference in zip(trial.inputs, trial.references, strict=True):
            rows.append({"source": source, "reference": reference, "output": next(outputs)})
    return rows[:: max(len(rows) // count, 1)][:count]


def _differences(old: Any, new: Any, path: str = "") -> list[str]:
    """Where two recipes differ, with both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        out = []
        for key in dict.fromkeys([*old, *new]):
            out += _differences(old.get(key), new.get(key), f"{path}.{key}" if path else key)
        return out
    return [] if old == new else [f"{path}: {old!r} -> {new!r}"]


def _clear(folder: Path) -> None:
    """Delete what an earlier run left, and nothing else."""
    for name in ("checkpoints", "snapshots", "best", "final", "vocabulary", "tensorboard"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in (RECIPE, LOG, FACTS, REPORT):
        (folder / name).unlink(missing_ok=True)


def _said(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
