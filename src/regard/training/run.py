"""A run from beginning to end: read the data, choose what was left open, train, leave a folder anybody can use."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from regard.data.pace import listening
from regard.errors import CheckpointError, Interrupted, SpecError, UnknownName
from regard.folder import Folder, read_folder, write_folder
from regard.machine import free_memory, keep_large_blocks, machine, precision
from regard.model.count import cost
from regard.model.model import Net
from regard.model.show import tree
from regard.nn import lora
from regard.report.run import RunFacts, run_report
from regard.tasks import find
from regard.tasks.task import Raw, Task
from regard.training.begin import LOG, RECIPE, REPORT, TOKENS, agree, amend, note, recalled
from regard.training.checkpoint import Checkpoints
from regard.training.export import card, config_of, export, metric_signatures, restore, versions
from regard.training.finite import demand_finite
from regard.training.lock import RunLock
from regard.training.log import Log, read_log
from regard.training.loop import Data, Trainer
from regard.training.progress import Progress
from regard.training.ranks import Ranks
from regard.training.recipe import Recipe, Train, merged, read_recipe, set_path
from regard.training.room import measured_tokens
from regard.training.start import Taken, inherited, take
from regard.training.stop import Stop
from regard.training.text import write_text


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
    anyway: bool = False
    """Go on with a run although its recipe, corpus, threads or torch changed."""
    device: str = "auto"
    quiet: bool = False
    tensorboard: bool = False
    plugins: Sequence[str] = ()
    """The user's own files, which the command line has run; here only to be named again."""

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
        words += ["--tensorboard"] if self.tensorboard else []
        words += [w for plugin in self.plugins for w in ("--plugin", plugin)]
        return shlex.join(words)


def execute(order: Order) -> Path:
    """Train as ordered, resuming if the run folder holds a beginning; gives the folder of the finished model."""
    start = None if order.start is None else model_folder(order.start)
    if start is not None:
        if order.folder.resolve() in (start.path.resolve(), *start.path.resolve().parents):
            raise SpecError(f"a run cannot start from a model in its own folder {order.folder}; choose another --out")
        restore(start)  # what is wrong with it is said now
    asked = _asked(order, start)
    run = _Run(order, asked, start)
    with RunLock(order.folder) if run.ranks.leads else nullcontext(), listening(run.progress.say):
        return run.execute()


def device_of(asked: str) -> str:
    """`auto` is the fastest device torch finds here."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if asked == "auto":
        return next(name for name, found in there.items() if found)
    name = re.sub(r"(?<=^cuda):\d+$", "", asked)
    if name not in there:
        raise UnknownName("device", asked, ["auto", *there])
    if not there[name]:
        raise SpecError(f"torch finds no device {asked!r} on this machine; use --device auto")
    return asked


class _Run:
    def __init__(self, order: Order, asked: dict[str, Any], start: Folder | None) -> None:
        self.order, self.folder, self.start = order, order.folder, start
        self.asked = {key: value for key, value in asked.items() if key != "advise"}
        self.advise = asked.get("advise", False)
        if not isinstance(self.advise, bool):
            raise SpecError(f"advise should be true or false, got {self.advise!r}")
        self.device = device_of(order.device)
        self.ranks = Ranks.joined(self.device)
        self.quiet = order.quiet or not self.ranks.leads
        self.progress = Progress(1, quiet=self.quiet)
        self.taken: Taken | None = None
        self.changed: list[str] = []

    def execute(self) -> Path:
        Recipe.parse(_without_advice(self.asked) if self.advise else self.asked)
        kind = find(self.asked["task"])
        settings = kind.Settings.parse(self.asked.get("data", {}))
        raw = kind.read(settings, int(self.asked.get("train", {}).get("seed", 1)))
        for line in raw.said:
            self.progress.say(line)
        self.recipe = self._decide(kind, settings, raw)
        self.facts: dict[str, Any] = {"fingerprint": raw.fingerprint, "command": self.order.command, **versions()}
        self.facts |= {
            "threads": self.recipe.train.threads or torch.get_num_threads(),
            "processes": self.ranks.size,
            "device": self.device,
            "precision": precision(self.recipe.train.precision, self.device),
            "start": None if self.start is None else f"{self.order.start} ({_digest(self.start)[:12]})",
        }
        keep_large_blocks()
        with _threads(self.facts["threads"]), torch.random.fork_rng(devices=[]):
            if not self.ranks.leads:
                return self._follow(kind, raw)
            self.changed = agree(self.folder, self.recipe, self.facts, fresh=self.order.fresh, anyway=self.order.anyway)
            task = self._task(kind, raw)
            trainer = self._trainer(task, raw)
            return self._train(trainer, task, raw)

    def _follow(self, kind: type[Task], raw: Raw) -> Path:
        """One of several processes that does not lead: wait until the run folder is made, and write nothing there."""
        self.ranks.wait()
        with TemporaryDirectory() as aside:
            trainer = self._trainer(self._task(kind, raw), raw, Path(aside))
            trainer.resume()
            self.ranks.wait()
            with Stop():  # the leader decides, also when all are asked to stop
                trainer.follow()
        return self.folder / "final"

    # ------------------------------------------------------------------------------------------------ deciding

    def _decide(self, kind: type[Task], settings: Any, raw: Raw) -> Recipe:
        """The whole recipe: what the data advises, under what was asked for."""
        advised: Mapping[str, Any] = {}
        if self.advise:
            advice = kind.advise(settings, raw, self.asked.get("train", {}))
            for reason in advice.reasons:
                self.progress.say(f"chosen: {reason}")
            advised = {"train": advice.recipe["train"]} if self.start else advice.recipe
        whole = Recipe.parse(merged(advised, self.asked))
        return dataclasses.replace(whole, data=kind.Settings.parse(whole.data).plain())

    def _task(self, kind: type[Task], raw: Raw) -> Task:
        """The task with its vocabulary: of the model to start from, or the run's own, learned once and kept."""
        settings, kept = kind.Settings.parse(self.recipe.data), self.folder / "vocabulary"
        if kept.exists():
            return kind.load(settings, read_folder(kept).files)
        task = kind.prepare(settings, raw) if self.start is None else kind.adopt(settings, raw, self.start.files)
        write_folder(kept, task.files())
        return task

    def _trainer(self, task: Task, raw: Raw, logs: Path | None = None) -> Trainer:
        net = self._net(task)
        torch.manual_seed(self.recipe.train.seed)
        parts = {"train": raw.train, "valid": raw.valid}
        kept = {name: task.store(part, self.folder / TOKENS / name, raw.fingerprint) for name, part in parts.items()}
        data = Data(**kept, trials=task.trials(raw.valid))
        train = self._sized(net, task, data)
        log = Log(
            (logs or self.folder) / LOG, tensorboard=self.folder / "tensorboard" if self.order.tensorboard else None
        )
        checkpoints = Checkpoints(self.folder / "checkpoints", keep=train.keep)
        bf16 = self.facts["precision"] == "bfloat16"
        return Trainer(net, task, data, train, checkpoints=checkpoints, log=log, bf16=bf16, ranks=self.ranks)

    def _sized(self, net: Net, task: Task, data: Data) -> Train:
        """How to train, with the batch that fits into memory where that was asked for: found once and kept."""
        train = self.recipe.train
        if train.tokens != "auto":
            return train
        found, free = recalled(self.folder, "tokens"), free_memory()
        if found is None:
            found = measured_tokens(net, task, data.train, train, free)
            note(self.folder, tokens=found)
            self.progress.say(
                f"chosen: batches of {found:,} tokens, which fit into {free / 2**30:.1f} GiB of free memory"
            )
        return dataclasses.replace(train, tokens=found)

    def _net(self, task: Task) -> Net:
        net = task.fit(self.recipe.model_spec(task.facts())).build(self.recipe.train.seed)
        if self.start is not None:
            self.taken = take(net, self.start, str(self.order.start), task.files())
        if self.recipe.train.tune is not None:
            new = () if self.taken is None else self.taken.new
            self.recipe.train.tune.apply(net, new, self.recipe.train.seed)
        return net.to(self.device)

    # ------------------------------------------------------------------------------------------------ training

    def _train(self, trainer: Trainer, task: Task, raw: Raw) -> Path:
        said = trainer.resume(self.changed)
        progress = self.progress = Progress(trainer.total, trainer.now.step, quiet=self.quiet)
        with closing(trainer.log), progress:
            for line in said or self._opening(trainer):
                progress.say(line)
            if not said:
                began = {"parameters": self._parameters(trainer.net), "total": trainer.total, **self.facts}
                began |= {} if self.taken is None else {"weights": dataclasses.asdict(self.taken)}
                began |= {"dropped": raw.dropped} if raw.dropped else {}
                trainer.log.write("start", 0, **began)
            if self.changed:
                progress.say(f"going on all the same: {'; '.join(self.changed)}")
                trainer.log.write("changed", trainer.now.step, changes=self.changed)
                amend(self.folder, self.recipe, self.facts)
            for _ in range(2):  # the others come when the folder is made, and have read it when they come again
                self.ranks.wait()
            with Stop() as stop, self.ranks:
                trainer.fit(stop, progress, on_better=lambda: self._export("best", trainer, task, None))
            if stop.asked is not None:
                where = f"step {trainer.now.step} of {trainer.total}"
                raise Interrupted(f"stopped at {where}, saved; to go on: {self.order.command}", stop.asked)
            final = self.folder / "final"
            done = (self._done() if final.exists() else None) or self._finish(trainer, task)
            progress.say("done: " + "  ".join(f"{k} {v:.4g}" for k, v in done["scores"].items()) + f"  in {final}")
        self._report(trainer, raw, done["examples"])
        return final

    def _done(self) -> dict[str, Any] | None:
        """The last line of a finished run's log, unless something changed since."""
        ends = (event for event in reversed(read_log(self.folder / LOG)) if event["event"] in ("done", "changed"))
        last = next(ends, {"event": None})
        return last if last["event"] == "done" else None

    def _opening(self, trainer: Trainer) -> list[str]:
        count, examples = self._parameters(trainer.net), trainer.data.train
        where = f"{self.facts['threads']} threads of {machine().processor}" if self.device == "cpu" else self.device
        left = f" ({examples.left_out:,} too long ones left out)" if examples.left_out else ""
        learns = sum(p.numel() for p in trainer.net.parameters() if p.requires_grad)
        part = f", {learns:,} of them learn" if learns < count else ""
        return [
            *(() if self.taken is None else self.taken.lines(str(self.order.start))),
            f"model: {count:,} parameters{part}, {self.facts['precision']}, on {where}",
            f"training: {trainer.total:,} steps, {len(examples):,} examples{left}; run folder {self.folder}",
        ]

    def _finish(self, trainer: Trainer, task: Task) -> dict[str, Any]:
        """The model to keep: the average where one was asked for, otherwise the best; and what there is to say of it."""
        steps = [step for step, _ in trainer.now.snapshots]
        if steps:
            weights = trainer.snapshots.mean(steps)
        else:
            weights = restore(read_folder(self.folder / "best"))[0].state_dict() | lora.blank(trainer.net)
        with trainer.weights(weights):
            scores = trainer.evaluate(self.recipe.decode)
            examples = _examples(trainer)
            self._export("final", trainer, task, scores)
        done = {"scores": scores, "seconds": round(trainer.now.seconds, 3), "examples": examples}
        trainer.log.write("done", trainer.now.step, **done)
        return done

    def _export(self, name: str, trainer: Trainer, task: Task, scores: Mapping[str, float] | None) -> None:
        facts = {
            "recipe": json.dumps(json.loads(self.recipe.json()), ensure_ascii=False),
            "step": trainer.now.step,
            **self.facts,
        }
        title = f"{self.folder.name}: a {self.recipe.task} model"
        text = card(title, scores or {}, metric_signatures(task.metrics) if scores else {}, facts)
        weights = lora.merged(trainer.net)
        demand_finite(trainer.now.step, {name: weights})
        export(
            self.folder / name, task=task, name=self.recipe.task, net=trainer.net, search=self.recipe.decode,
            weights=weights, card=text,
        )  # fmt: skip

    def _report(self, trainer: Trainer, raw: Raw, examples: list[Any]) -> None:
        log = read_log(self.folder / LOG)
        facts = {
            "command": self.facts["command"],
            "versions": versions(),
            "parameters": self._parameters(trainer.net),
            "device": self.device,
        }
        run = RunFacts(
            self.folder.name, log, self.recipe.yaml(), tree(trainer.net), examples, raw.facts, facts, raw.dropped
        )
        write_text(self.folder / REPORT, run_report(run))

    def _parameters(self, net: Net) -> int:
        return cost(net, 1).parameters


def model_folder(path: str | Path) -> Folder:
    """A model folder, or the best one of a run folder: final, else best."""
    path = Path(path)
    for name in ("final", "best"):
        if (path / name).is_symlink():
            raise CheckpointError(f"{path / name} is a link, and links in a run are not followed; name where it leads")
        with suppress(SpecError):  # there is none
            return read_folder(path / name)
    if (path / RECIPE).exists():
        raise CheckpointError(f"{path} is a run that has not validated yet; let it train a little longer")
    return read_folder(path)


def _asked(order: Order, start: Folder | None) -> dict[str, Any]:
    """The recipe with the command line's files and settings laid over it."""
    asked = read_recipe(order.recipe) if isinstance(order.recipe, str) else merged(order.recipe)
    asked |= {"task": order.set["task"]} if "task" in order.set else {}
    if start is not None:
        asked.setdefault("task", config_of(start)["task"])
    if "task" not in asked:
        raise SpecError("task is missing: name one, or a model to go on with (--from MODEL), whose task it then is")
    if order.data or order.valid:
        asked = merged(asked, {"data": find(asked["task"]).given(order.data, order.valid)})
    if start is not None:
        under, over = inherited(start, asked["task"], find(asked["task"]).Settings)
        asked = {**merged(under, asked, over), "model": {"spec": config_of(start)["model"]}}
    for path, value in order.set.items():
        asked = merged(asked, set_path(path, value))
    return asked


def _without_advice(asked: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe as far as it can be checked before the data is read: advice may still say how long, and which kinds."""
    whole = merged({"train": {"epochs": 1}}, asked)
    if isinstance(whole["train"], dict):
        for name in ("optimizer", "schedule"):
            part = whole["train"].get(name)
            if isinstance(part, dict) and "kind" not in part:
                del whole["train"][name]
    return whole


def _digest(folder: Folder) -> str:
    """SHA-256 of all that a model folder holds."""
    digest = hashlib.sha256()
    for name, data in sorted(folder.files.items()):
        digest.update(f"{name} {len(data)}\n".encode() + data)
    return digest.hexdigest()


def _examples(trainer: Trainer, count: int = 12) -> list[dict[str, Any]]:
    if not trainer.outputs:  # no score asked for any
        return []
    outputs = iter(trainer.outputs)
    rows: list[dict[str, Any]] = []
    for trial in trainer.data.trials:
        for source, reference in zip(trial.inputs, trial.references, strict=True):
            rows.append({"source": str(source), "reference": reference, "output": next(outputs)})
    return rows[:: max(len(rows) // count, 1)][:count]


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """So many threads for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _said(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
