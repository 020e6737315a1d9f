"""A run from beginning to end: read the data, choose what was left open, train, leave a folder anybody can use."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from regard.data.progress import progress_to
from regard.errors import CheckpointError, Interrupted, SpecError
from regard.families.expand import check_model_keys
from regard.files.folder import Folder, read_folder, recover, verify, write_folder
from regard.files.storage import explain_errors, write_file
from regard.machine import (
    free_memory,
    keep_large_blocks,
    limit_kernel_caches,
    machine,
    precision,
    resolve_device,
    versions,
)
from regard.metrics import METRICS
from regard.model.cost import cost
from regard.model.net import Net
from regard.model.tree import tree
from regard.nn.layers import lora
from regard.recipes.merge import merge
from regard.report.number import duration
from regard.report.training_report import RunFacts, run_report
from regard.serialization.load import load_model
from regard.serialization.model_card import metric_signatures, render_card
from regard.serialization.model_folder import (
    BEST,
    CHECKPOINTS,
    FINAL,
    LOG,
    REPORT,
    TENSORBOARD,
    TOKENS,
    VOCABULARY,
    find_model,
    write_model,
)
from regard.tasks import find
from regard.tasks.common.capabilities import advise, encode_to, eval_sets, prepare_from
from regard.tasks.common.task import Dataset, Task
from regard.training.batch_size import measure_batch_tokens
from regard.training.checkpoint import Checkpoints
from regard.training.data_parallel import ProcessGroup
from regard.training.finetune import Initialization, initialize_from
from regard.training.interrupt import InterruptHandler
from regard.training.lock import RunLock
from regard.training.log import Log, read_log
from regard.training.optimizer_step import check_finite
from regard.training.progress_bar import Progress
from regard.training.recipe import Recipe, Train, list_overrides, select_supported
from regard.training.request import TrainRequest, build_recipe, fill_open_settings
from regard.training.run_folder import RUN_FILES, open_run, read_fact, replace_run, save_facts, update_run
from regard.training.time_estimate import estimate_seconds
from regard.training.trainer import TrainData, Trainer

ASIDE = 1
"""The seed of what is set aside: whatever seed a run has, it is judged by the same examples, and learns the same vocabulary."""


def run_training(request: TrainRequest) -> Path:
    """Train as ordered, resuming if the run folder holds a beginning; gives the folder of the finished model."""
    start = None if request.start is None else find_model(request.start)
    if start is not None:
        if request.folder.resolve() in (start.path.resolve(), *start.path.resolve().parents):
            raise SpecError(f"a run cannot start from a model in its own folder {request.folder}; choose another --out")
        load_model(start)  # what is wrong with it is said now
    asked = build_recipe(request, start)
    run = _Run(request, asked, start)
    with RunLock(request.folder) if run.ranks.is_leader else nullcontext(), progress_to(run.progress.say):
        return run.execute()


class _Run:
    def __init__(self, request: TrainRequest, asked: dict[str, Any], start: Folder | None) -> None:
        self.request, self.folder, self.start = request, request.folder, start
        self.asked = {key: value for key, value in asked.items() if key != "auto"}
        self.auto = asked.get("auto", False)
        if not isinstance(self.auto, bool):
            raise SpecError(f"auto should be true or false, got {self.auto!r}")
        self.device = resolve_device(request.device)
        self.ranks = ProcessGroup.join(self.device)
        self.quiet = request.quiet or not self.ranks.is_leader
        self.progress = Progress(1, quiet=self.quiet)
        self.taken: Initialization | None = None
        self.changed: list[str] = []

    def execute(self) -> Path:
        Recipe.parse(fill_open_settings(self.asked) if self.auto else self.asked)
        kind = find(self.asked["task"])
        settings = kind.Settings.parse(self.asked.get("data", {}), "data")
        check_model_keys(self.asked.get("model", {}))
        raw = kind.read(settings, ASIDE)
        for line in raw.messages:
            self.progress.say(line)
        self.recipe = self._decide(kind, settings, raw)
        command = self.ranks.command_line(self.request.command)
        self.facts: dict[str, Any] = {"fingerprint": raw.fingerprint, "command": command, **versions()}
        self.facts |= {
            "threads": self.recipe.train.threads or torch.get_num_threads(),
            "processes": self.ranks.size,
            "device": self.device,
            "precision": precision(self.recipe.train.precision, self.device),
            "start": None if self.start is None else f"{self.request.start} ({_digest(self.start)[:12]})",
        }
        keep_large_blocks()
        limit_kernel_caches(self.facts["threads"])
        with _threads(self.facts["threads"]), torch.random.fork_rng(devices=[]):
            if not self.ranks.is_leader:
                return self._follow(kind, raw)
            with replace_run(self.folder, RUN_FILES):
                how = {"fresh": self.request.fresh, "anyway": self.request.anyway}
                self.changed = open_run(self.folder, self.recipe, self.facts, **how)
                task = self._task(kind, raw)
                trainer = self._trainer(task, raw)
                trainer.rate(1)  # what is wrong with the schedule is said now
            return self._train(trainer, task, raw)

    def _follow(self, kind: type[Task], raw: Dataset) -> Path:
        """One of several processes that does not lead: wait until the run folder is made, and write nothing there."""
        self.ranks.wait()
        with TemporaryDirectory() as aside:
            trainer = self._trainer(self._task(kind, raw), raw, Path(aside))
            trainer.resume()
            self.ranks.wait()
            with InterruptHandler():  # the leader decides, also when all are asked to stop
                trainer.follow()
        return self.folder / FINAL

    # ------------------------------------------------------------------------------------------------ deciding

    def _decide(self, kind: type[Task], settings: Any, raw: Dataset) -> Recipe:
        """The whole recipe: what the data advises, under what was asked for."""
        advised: dict[str, Any] = {}
        if self.auto:
            advice = advise(kind, settings, raw, self.asked.get("train", {}))
            for reason in advice.reasons:
                self.progress.say(f"chosen: {reason}")
            advised = {"train": advice.recipe["train"]} if self.start else {**advice.recipe}
            if "model" in advised:
                advised["model"] = select_supported(advised["model"], self.asked.get("model", {}))
            if own := list_overrides(advised, self.asked):
                self.progress.say(f"set by you instead: {', '.join(own)}")
        whole = Recipe.parse(merge(advised, self.asked))
        return dataclasses.replace(whole, data=kind.Settings.parse(whole.data, "data").plain())

    def _task(self, kind: type[Task], raw: Dataset) -> Task:
        """The task with its vocabulary: of the model to start from, or the run's own, learned once and kept."""
        settings, kept = kind.Settings.parse(self.recipe.data), self.folder / VOCABULARY
        if kept.exists():
            return kind.load(settings, read_folder(kept).files)
        task = (
            kind.prepare(settings, raw) if self.start is None else prepare_from(kind, settings, raw, self.start.files)
        )
        write_folder(kept, task.files())
        return task

    def _trainer(self, task: Task, raw: Dataset, logs: Path | None = None) -> Trainer:
        net = self._net(task)
        torch.manual_seed(self.recipe.train.seed)
        parts = {"train": raw.train, "valid": raw.valid}
        kept = {
            name: encode_to(task, self.folder / TOKENS / name, part, raw.fingerprint) for name, part in parts.items()
        }
        data = TrainData(**kept, trials=eval_sets(task, raw.valid))
        train = self._sized(net, task, data)
        log = Log(
            (logs or self.folder) / LOG, tensorboard=self.folder / TENSORBOARD if self.request.tensorboard else None
        )
        checkpoints = Checkpoints(self.folder / CHECKPOINTS, keep=train.keep_checkpoints)
        bf16 = self.facts["precision"] == "bfloat16"
        return Trainer(
            net,
            task,
            data,
            train,
            checkpoints=checkpoints,
            log=log,
            bf16=bf16,
            search=self.recipe.decode,
            ranks=self.ranks,
        )

    def _sized(self, net: Net, task: Task, data: TrainData) -> Train:
        """How to train, with the batch that fits into memory where that was asked for: found once and kept."""
        train = self.recipe.train
        if train.batch_tokens != "auto":
            return train
        found, free = read_fact(self.folder, "batch_tokens"), free_memory()
        if found is None:
            found = measure_batch_tokens(net, task, data.train, train, free)
            save_facts(self.folder, batch_tokens=found)
            self.progress.say(
                f"chosen: batches of {found:,} tokens, which fit into {free / 2**30:.1f} GiB of free memory"
            )
        return dataclasses.replace(train, batch_tokens=found)

    def _net(self, task: Task) -> Net:
        notes: list[str] = []
        net = task.adapt_spec(self.recipe.model_spec(task.model_arguments(), notes)).build(self.recipe.train.seed)
        for line in notes:
            self.progress.say(line)
        if self.start is not None:
            self.taken = initialize_from(net, self.start, str(self.request.start), task.files())
        if self.recipe.train.finetune is not None:
            new = () if self.taken is None else self.taken.new
            self.recipe.train.finetune.apply(net, new, self.recipe.train.seed)
        return net.to(self.device)

    # ------------------------------------------------------------------------------------------------ training

    def _train(self, trainer: Trainer, task: Task, raw: Dataset) -> Path:
        said = trainer.resume(self.changed) or self._begin(trainer)
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
                self._change(trainer)
            for _ in range(2):  # the others come when the folder is made, and have read it when they come again
                self.ranks.wait()
            with InterruptHandler() as stop, self.ranks:
                trainer.fit(stop, progress, on_better=lambda: self._export(BEST, trainer, task, trainer.now.step))
            if stop.asked is not None:
                where = f"step {trainer.now.step} of {trainer.total}"
                raise Interrupted(f"stopped at {where}, saved; to go on: {self.facts['command']}", stop.asked)
            final = self.folder / FINAL
            done = (self._done() if final.exists() else None) or self._finish(trainer, task)
            if skipped := sum(event["event"] == "skip" for event in read_log(self.folder / LOG)):
                progress.say(
                    f"{skipped} of {trainer.now.step} steps were not finite and skipped; {LOG} names their examples"
                )
            progress.say("done: " + "  ".join(f"{k} {v:.4g}" for k, v in done["scores"].items()) + f"  in {final}")
        self._report(trainer, task, raw, done["examples"])
        return final

    def _begin(self, trainer: Trainer) -> list[str]:
        """Begin a run that has no checkpoint, unless it had some; what there is to say then. No model is written over."""
        final, saved = self.folder / FINAL, self._saved_once(trainer.save_every)
        if saved and not self.changed and self._done() and _whole(final):
            trainer.now.finished = True
            return ["this run is finished; its checkpoints are gone, so that no step can be added"]
        if saved:
            raise CheckpointError(
                f"{self.folder} holds the model of a run, but no checkpoint to go on from: start over with --fresh, or "
                f"begin a run from that model with --from {self.folder} and another --out"
            )
        if self.changed:
            update_run(self.folder, self.recipe, self.facts)
            self.changed = []
        trainer.log.rewind(-1)
        return []

    def _saved_once(self, every: int) -> bool:
        """Whether a run left more than one that was killed before its first save, which comes after so many steps."""
        with explain_errors("read final", self.folder):
            recover(self.folder / FINAL)
        if (self.folder / FINAL).exists():
            return True
        steps = [event["step"] for event in read_log(self.folder / LOG)]
        judged = any((self.folder / name).exists() for name in (BEST, f".{BEST}.previous"))
        return judged and (not steps or max(steps) > every)

    def _change(self, trainer: Trainer) -> None:
        """Go on otherwise than the run began: saved first, then written down, so that no crash loses a part."""
        self.progress.say(f"going on all the same: {'; '.join(self.changed)}")
        trainer.log.write("changed", trainer.now.step, changes=self.changed)
        trainer.save()
        update_run(self.folder, self.recipe, self.facts)

    def _done(self) -> dict[str, Any] | None:
        """The last line of a finished run's log, unless something changed since."""
        ends = (event for event in reversed(read_log(self.folder / LOG)) if event["event"] in ("done", "changed"))
        last = next(ends, {"event": None})
        return last if last["event"] == "done" else None

    def _opening(self, trainer: Trainer) -> list[str]:
        count, examples = self._parameters(trainer.net), trainer.data.train
        threads = f"{self.facts['threads']} thread{'s' * (self.facts['threads'] > 1)}"
        where = f"{threads} of {machine().processor}" if self.device == "cpu" else self.device
        left = f" ({examples.left_out:,} too long ones left out)" if examples.left_out else ""
        learns = sum(p.numel() for p in trainer.net.parameters() if p.requires_grad)
        part = f", {learns:,} of them learn" if learns < count else ""
        seconds = None if self.quiet else estimate_seconds(trainer)
        time = "" if seconds is None else f", about {duration(seconds)} on this machine beside validation"
        return [
            *(() if self.taken is None else self.taken.lines(str(self.request.start))),
            f"model: {count:,} parameters{part}, {self.facts['precision']}, on {where}",
            f"training: {trainer.total:,} steps, {len(examples):,} examples{left}{time}; run folder {self.folder}",
        ]

    def _finish(self, trainer: Trainer, task: Task) -> dict[str, Any]:
        """The model to keep: the average where one was asked for, otherwise the best; and what there is to say of it."""
        steps = [step for step, _ in trainer.now.snapshots]
        if steps:
            weights = trainer.snapshots.average(steps)
        else:
            weights = load_model(read_folder(self.folder / BEST))[0].state_dict() | lora.blank(trainer.net)
        with trainer.net.holding(weights):
            scores = trainer.validator.scores(greedily=False)
            examples = trainer.validator.examples()
            whose = f"the mean of {', '.join(map(str, steps))}" if steps else trainer.now.best_step
            self._export(FINAL, trainer, task, whose, scores)
        done = {"scores": scores, "seconds": round(trainer.now.seconds, 3), "examples": examples}
        trainer.log.write("done", trainer.now.step, **done)
        return done

    def _export(
        self, name: str, trainer: Trainer, task: Task, step: int | str, scores: Mapping[str, float] | None = None
    ) -> None:
        """Write a model folder; its card says of which step the weights are."""
        facts = {
            "recipe": json.dumps(json.loads(self.recipe.json()), ensure_ascii=False),
            "step": step,
            **self.facts,
        }
        title = f"{self.folder.name}: a {self.recipe.task} model"
        text = render_card(title, scores or {}, metric_signatures(task.metrics) if scores else {}, facts)
        weights = lora.merged(trainer.net)
        check_finite(trainer.now.step, {name: weights})
        write_model(
            self.folder / name, task=task, name=self.recipe.task, net=trainer.net, search=self.recipe.decode,
            weights=weights, card=text,
        )  # fmt: skip

    def _report(self, trainer: Trainer, task: Task, raw: Dataset, examples: list[Any]) -> None:
        log = read_log(self.folder / LOG)
        facts = {
            "command": self.facts["command"],
            "versions": versions(),
            "parameters": self._parameters(trainer.net),
            "device": self.device,
        }
        run = RunFacts(
            self.folder.name,
            log,
            self.recipe.yaml(),
            tree(trainer.net),
            examples,
            raw.statistics,
            facts,
            raw.dropped,
            [name for name in task.metrics if not METRICS[name].higher],
        )
        write_file(self.folder / REPORT, run_report(run))

    def _parameters(self, net: Net) -> int:
        return cost(net, 1).parameters


def _whole(model: Path) -> bool:
    """Whether a model folder is what its manifest says."""
    with explain_errors(f"read {model.name}", model.parent):
        try:
            verify(model)
        except CheckpointError:
            return False
    return True


def _digest(folder: Folder) -> str:
    """SHA-256 of all that a model folder holds."""
    digest = hashlib.sha256()
    for name, data in sorted(folder.files.items()):
        digest.update(f"{name} {len(data)}\n".encode() + data)
    return digest.hexdigest()


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """So many threads for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
