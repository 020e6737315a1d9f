"""A training run from start to end.

Read the data, complete the recipe, open the run folder, train, and leave a model folder and a report.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from regard.data.progress import progress_to
from regard.digests import digest_code
from regard.errors import Interrupted, SpecError
from regard.families.expand import check_model_keys
from regard.files.folder import Folder
from regard.machine import keep_large_blocks, limit_kernel_caches, machine, precision, resolve_device, versions
from regard.model.cost import cost
from regard.registry import find_homes
from regard.serialization.load import load_model
from regard.serialization.model_folder import FINAL, LOG, find_model
from regard.spec import Plain
from regard.tasks import find
from regard.tasks.common.task import Dataset, Task
from regard.training.prepare import TrainerBuilder
from regard.training.recipe import Recipe
from regard.training.request import TrainRequest, build_recipe, complete_recipe, fill_open_settings, reuse_recipe
from regard.training.run.artifacts import Artifacts
from regard.training.run.interrupt import InterruptHandler
from regard.training.run.lock import RunLock
from regard.training.run.log import read_log
from regard.training.run.messages import describe_run, suggest_commands
from regard.training.run.progress_bar import Progress
from regard.training.run.repair import clean_up, copy_description, repair_description, restore_or_refuse
from regard.training.run.resume import is_finished_without_checkpoint
from regard.training.run.run_changes import PLUGINS, Change, list_words
from regard.training.run.run_folder import has_begun, open_run, read_facts, replace_run, update_run
from regard.training.step.data_parallel import ProcessGroup
from regard.training.step.memory_budget import explain_lack_of_memory
from regard.training.step.validate import render_scores
from regard.training.trainer import Trainer

SPLIT_SEED = 1
"""Seed of the held-out data: runs with different seeds are validated on the same examples and learn the same vocabulary."""


def run_training(request: TrainRequest) -> Path:
    """Train as requested, resuming if the run folder holds a started run; returns the folder of the final model."""
    start = None if request.start is None else find_model(request.start)
    if start is not None:
        if request.folder.resolve() in (start.path.resolve(), *start.path.resolve().parents):
            raise SpecError(f"a run cannot start from a model in its own folder {request.folder}; choose another --out")
        load_model(start)  # report its faults before anything else is done
    notes: list[str] = []
    run = _Run(request, build_recipe(request, start, notes), start)
    for note in notes:
        run.progress.say(note)
    lock = RunLock(request.folder) if run.process_group.is_leader else nullcontext()
    with lock, progress_to(run.progress.say), explain_lack_of_memory():
        return run.execute()


class _Run:
    """One run: the request, what was decided, and the steps from data to model folder."""

    def __init__(self, request: TrainRequest, requested: Plain, start: Folder | None) -> None:
        self.request, self.folder, self.start = request, request.folder, start
        self.requested = {key: value for key, value in requested.items() if key != "auto"}
        self.auto = requested.get("auto", False)
        if not isinstance(self.auto, bool):
            raise SpecError(f"auto should be true or false, got {self.auto!r}")
        self.device = resolve_device(request.device)
        self.process_group = ProcessGroup.join(self.device)
        self.quiet = request.quiet or not self.process_group.is_leader
        self.progress = Progress(1, quiet=self.quiet)
        self.changed: list[Change] = []

    def execute(self) -> Path:
        Recipe.parse(fill_open_settings(self.requested) if self.auto else self.requested)
        if self.process_group.is_leader:
            self._repair()
        self.process_group.wait()  # the others read what may have been repaired
        kind = find(self.requested["task"])
        settings = kind.Settings.parse(self.requested.get("data", {}), "data")
        check_model_keys(self.requested.get("model", {}))
        dataset = kind.read(settings, SPLIT_SEED)
        for line in dataset.messages:
            self.progress.say(line)
        self.recipe = self._decide(kind, dataset)
        if self.recipe.train.steps is not None:  # a schedule that cannot begin is refused before a corpus is tokenized
            self.recipe.train.schedule.rate(1, total=self.recipe.train.steps, width=1)
        self.facts: Plain = {
            "fingerprint": dataset.fingerprint,
            PLUGINS: digest_code([*map(Path, self.request.plugins), *find_homes(list_words(self.recipe.plain()))]),
            "command": self.process_group.command_line(self.request.command),
            **versions(),
            "processor": machine().processor,
            "threads": self.recipe.train.threads or torch.get_num_threads(),
            "processes": self.process_group.size,
            "device": self.device,
            "precision": self._precision(),
            "start": None if self.start is None else f"{self.request.start} ({_digest(self.start)[:12]})",
            "requested": json.loads(json.dumps(self.requested, default=str)),
        }
        self.builder = TrainerBuilder(
            self.request, self.recipe, self.facts, self.start, self.process_group, self.progress.say
        )
        keep_large_blocks()
        limit_kernel_caches(self.facts["threads"])
        with _threads(self.facts["threads"]), torch.random.fork_rng(devices=[]):
            if not self.process_group.is_leader:
                return self._follow(kind, dataset)
            with replace_run(self.folder):
                how = {"fresh": self.request.fresh, "anyway": self.request.anyway}
                self._compare_processors()
                self.changed = open_run(self.folder, self.recipe, self.facts, **how)
                trainer = self._prepare(kind, dataset)
                trainer.rate(1)  # report faults of the schedule before training
            return self._train(trainer, dataset)

    def _repair(self) -> None:
        """Remove what a crash left half written; make the files that describe the run again if they are damaged."""
        if not self.request.fresh:
            clean_up(self.folder)
            for line in repair_description(self.folder):
                self.progress.say(line)

    def _compare_processors(self) -> None:
        """Say that a run goes on elsewhere: another processor rounds differently."""
        was, now = read_facts(self.folder).get("processor"), self.facts["processor"]
        if has_begun(self.folder) and not self.request.fresh and was not in (None, now):
            self.progress.say(
                f"this run was started on another processor ({was}); from here on it may round differently"
            )

    def _follow(self, kind: type[Task], dataset: Dataset) -> Path:
        """Be one of several processes that does not lead: wait for the run folder, and write nothing there."""
        self.process_group.wait()
        with TemporaryDirectory() as scratch:
            trainer = self._prepare(kind, dataset, Path(scratch))
            trainer.resume()
            self.process_group.wait()
            with InterruptHandler():  # the leader decides, also when all are interrupted
                trainer.follow()
        return self.folder / FINAL

    # ------------------------------------------------------------------------------------------------ preparation

    def _prepare(self, kind: type[Task], dataset: Dataset, logs: Path | None = None) -> Trainer:
        return self.builder.build_trainer(self.builder.prepare_task(kind, dataset), dataset, logs)

    def _decide(self, kind: type[Task], dataset: Dataset) -> Recipe:
        """The complete recipe; what `auto` chose for an earlier run of the same request stays."""
        known = reuse_recipe(self.folder, self.requested) if self.auto and not self.request.fresh else None
        return known or complete_recipe(
            self.requested, kind, dataset, auto=self.auto, start=self.start is not None, say=self.progress.say
        )

    def _precision(self) -> str:
        """The precision asked for; `auto` is what the run started with, here or on another processor."""
        requested = self.recipe.train.precision
        resumes = requested == "auto" and not self.request.fresh and has_begun(self.folder)
        known = read_facts(self.folder).get("precision") if resumes else None
        return str(known or precision(requested, self.device))

    # ------------------------------------------------------------------------------------------------ training

    def _train(self, trainer: Trainer, dataset: Dataset) -> Path:
        artifacts, final = Artifacts(self.folder, self.recipe, self.facts, trainer), self.folder / FINAL
        resumed = trainer.resume(self.changed)
        trainer.copies = copy_description(self.folder, trainer.task.files())
        resumed = (
            [*resumed, *restore_or_refuse(artifacts, anyway=self.request.anyway)] if resumed else self._begin(trainer)
        )
        progress = self.progress = Progress(trainer.total, trainer.state.step, quiet=self.quiet)
        with closing(trainer.log), progress:
            for line in resumed or self._describe(trainer):
                progress.say(line)
            if not resumed:
                self._log_start(trainer, dataset)
            if trainer.state.step:
                trainer.prune()
            if self.changed:
                self._change(trainer)
            for _ in range(2):  # the others enter when the folder is ready, and again when they have read it
                self.process_group.wait()
            with InterruptHandler() as interrupt, self.process_group:
                trainer.fit(interrupt, progress, on_better=artifacts.write_best)
            if interrupt.signal is not None:
                where = f"step {trainer.state.step} of {trainer.total}"
                raise Interrupted(
                    f"stopped at {where}, and saved; to continue: {self.facts['command']}", interrupt.signal
                )
            done = artifacts.finish(progress.say)
            if skipped := sum(event["event"] == "skip" for event in read_log(self.folder / LOG)):
                progress.say(
                    f"{skipped} of {trainer.state.step} steps were not finite and were skipped; {LOG} lists their examples"
                )
            progress.say(f"done: {render_scores(done['scores'], done.get('decoding', ''))}  in {final}")
        artifacts.write_report(dataset, done["examples"])
        for line in suggest_commands(self.folder, trainer.task, self.request.plugins):
            progress.say(line)
        return final

    def _begin(self, trainer: Trainer) -> list[str]:
        """Start a run that has no checkpoint. Returns messages if it is finished nevertheless; no model is overwritten."""
        if is_finished_without_checkpoint(self.folder, trainer.save_every, changed=bool(self.changed)):
            trainer.state.finished = True
            return ["this run is finished; its checkpoints are gone, so no step can be added"]
        if self.changed:
            self._update(trainer)
            self.changed = []
        trainer.log.rewind(-1)
        return []

    def _change(self, trainer: Trainer) -> None:
        """Continue with changed settings. The checkpoint is saved first, then the recipe, so that no crash loses either."""
        self.progress.say(f"changed since the run was started: {'; '.join(map(str, self.changed))}")
        if not trainer.state.finished:
            step = trainer.state.step + 1
            self.progress.say(
                f"the schedule is now that of a run of {trainer.total:,} steps; "
                f"the learning rate of step {step:,} is {trainer.rate(step):.3g}"
            )
        changes = list(map(str, self.changed))
        told = [
            event.get("changes") for event in read_log(self.folder / LOG)[-1:] if event["step"] == trainer.state.step
        ]
        if told != [changes]:  # otherwise a crash came after it was told, and before the recipe was replaced
            trainer.log.write("changed", trainer.state.step, changes=changes)
        trainer.save()
        self._update(trainer)

    def _update(self, trainer: Trainer) -> None:
        """Replace the description of the run."""
        update_run(self.folder, self.recipe, self.facts)
        trainer.copies = copy_description(self.folder, trainer.task.files())

    def _describe(self, trainer: Trainer) -> list[str]:
        """List what is printed before the first step."""
        started = self.builder.initialization
        return [
            *(() if started is None else started.lines(str(self.request.start))),
            *describe_run(trainer, self.facts, self.folder, timed=not self.quiet),
        ]

    def _log_start(self, trainer: Trainer, dataset: Dataset) -> None:
        facts = {key: value for key, value in self.facts.items() if key != "requested"}
        began: Plain = {"parameters": cost(trainer.net, 1).parameters, "total": trainer.total, **facts}
        started = self.builder.initialization
        began |= {} if started is None else {"weights": dataclasses.asdict(started)}
        began |= {"dropped": dataset.dropped} if dataset.dropped else {}
        trainer.log.write("start", 0, **began)


def _digest(folder: Folder) -> str:
    """SHA-256 of everything in a model folder."""
    digest = hashlib.sha256()
    for name, data in sorted(folder.files.items()):
        digest.update(f"{name} {len(data)}\n".encode() + data)
    return digest.hexdigest()


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Set the number of threads of torch for a block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
