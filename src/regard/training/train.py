"""A training run from start to end.

Read the data, complete the recipe, open the run folder, train, and leave a model folder and a report.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shlex
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from regard.data.progress import progress_to
from regard.errors import CheckpointError, Interrupted, SpecError
from regard.families.expand import check_model_keys
from regard.files.folder import Folder, find_fault, read_folder, write_folder
from regard.machine import (
    free_memory,
    keep_large_blocks,
    limit_kernel_caches,
    machine,
    precision,
    resolve_device,
    versions,
)
from regard.model.cost import cost
from regard.model.net import Net
from regard.report.number import duration
from regard.serialization.load import load_model
from regard.serialization.model_folder import (
    BEST,
    CHECKPOINTS,
    FINAL,
    FINISHED,
    LOG,
    REPORT,
    TENSORBOARD,
    TOKENS,
    VOCABULARY,
    find_model,
)  # fmt: skip
from regard.spec import Plain
from regard.tasks import find
from regard.tasks.common.capabilities import encode_to, eval_sets, prepare_from
from regard.tasks.common.task import Dataset, Task
from regard.training.finetune import Initialization, initialize_from
from regard.training.recipe import Recipe, Train
from regard.training.request import TrainRequest, build_recipe, complete_recipe, fill_open_settings, reuse_recipe
from regard.training.run.artifacts import Artifacts
from regard.training.run.checkpoint import Checkpoints
from regard.training.run.interrupt import InterruptHandler
from regard.training.run.lock import RunLock
from regard.training.run.log import Log, read_log
from regard.training.run.progress_bar import Progress
from regard.training.run.repair import clean_up, copy_description, find_vocabulary, repair_description, restore_models
from regard.training.run.run_folder import (
    MEASURED,
    has_begun,
    open_run,
    read_facts,
    replace_run,
    save_facts,
    update_run,
)
from regard.training.step.batch_size import measure_batch_tokens
from regard.training.step.data_parallel import ProcessGroup
from regard.training.step.memory_budget import check_batch_memory, check_model_memory, explain_lack_of_memory
from regard.training.step.time_estimate import MIN_STEPS, estimate_seconds, time_steps
from regard.training.step.validate import render_scores
from regard.training.trainer import TrainData, Trainer

SPLIT_SEED = 1
"""Seed of the held-out data: runs with different seeds are validated on the same examples and learn the same vocabulary."""


def run_training(request: TrainRequest) -> Path:
    """Train as requested, resuming if the run folder holds a started run; returns the folder of the final model."""
    start = None if request.start is None else find_model(request.start)
    if start is not None:
        if request.folder.resolve() in (start.path.resolve(), *start.path.resolve().parents):
            raise SpecError(f"a run cannot start from a model in its own folder {request.folder}; choose another --out")
        load_model(start)  # report its faults before anything else is done
    run = _Run(request, build_recipe(request, start), start)
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
        self.initialization: Initialization | None = None
        self.changed: list[str] = []

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
            "command": self.process_group.command_line(self.request.command),
            **versions(),
            "threads": self.recipe.train.threads or torch.get_num_threads(),
            "processes": self.process_group.size,
            "device": self.device,
            "precision": self._precision(),
            "start": None if self.start is None else f"{self.request.start} ({_digest(self.start)[:12]})",
            "requested": json.loads(json.dumps(self.requested, default=str)),
        }
        keep_large_blocks()
        limit_kernel_caches(self.facts["threads"])
        with _threads(self.facts["threads"]), torch.random.fork_rng(devices=[]):
            if not self.process_group.is_leader:
                return self._follow(kind, dataset)
            with replace_run(self.folder):
                how = {"fresh": self.request.fresh, "anyway": self.request.anyway}
                self.changed = open_run(self.folder, self.recipe, self.facts, **how)
                trainer = self._trainer(self._task(kind, dataset), dataset)
                trainer.rate(1)  # report faults of the schedule before training
            return self._train(trainer, dataset)

    def _repair(self) -> None:
        """Remove what a crash left half written; make the files that describe the run again if they are damaged."""
        if not self.request.fresh:
            clean_up(self.folder)
            for line in repair_description(self.folder):
                self.progress.say(line)

    def _follow(self, kind: type[Task], dataset: Dataset) -> Path:
        """Be one of several processes that does not lead: wait for the run folder, and write nothing there."""
        self.process_group.wait()
        with TemporaryDirectory() as scratch:
            trainer = self._trainer(self._task(kind, dataset), dataset, Path(scratch))
            trainer.resume()
            self.process_group.wait()
            with InterruptHandler():  # the leader decides, also when all are interrupted
                trainer.follow()
        return self.folder / FINAL

    # ------------------------------------------------------------------------------------------------ preparation

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

    def _task(self, kind: type[Task], dataset: Dataset) -> Task:
        """The task with its vocabulary: that of the initial model, or the run's own, learned once."""
        settings, kept = kind.Settings.parse(self.recipe.data), self.folder / VOCABULARY
        fault = find_fault(kept)
        if fault is None:
            return kind.load(settings, read_folder(kept).files)
        if found := find_vocabulary(self.folder):
            task = kind.load(settings, found[1])
            self.progress.say(f"{fault}; written again from {found[0]}")
        elif self.start is None:
            task = kind.prepare(settings, dataset)
        else:
            task = prepare_from(kind, settings, dataset, self.start.files)
        write_folder(kept, task.files(), damaged=True)
        return task

    def _trainer(self, task: Task, dataset: Dataset, logs: Path | None = None) -> Trainer:
        net = self._net(task)
        torch.manual_seed(self.recipe.train.seed)
        tokens = self.folder / TOKENS
        train, valid = (
            encode_to(task, tokens / name, part, dataset.fingerprint)
            for name, part in (("train", dataset.train), ("valid", dataset.valid))
        )
        data = TrainData(train, valid, eval_sets(task, dataset.valid))
        settings = self._with_batch_tokens(net, task, data)
        if self.device == "cpu":
            check_batch_memory(net, train, settings)
        tensorboard = self.folder / TENSORBOARD if self.request.tensorboard else None
        trainer = Trainer(
            net, task, data, settings,
            checkpoints=Checkpoints(self.folder / CHECKPOINTS, keep=settings.keep_checkpoints),
            log=Log((logs or self.folder) / LOG, tensorboard=tensorboard),
            search=self.recipe.decode,
            process_group=self.process_group,
        )  # fmt: skip
        if self.facts["precision"] == "auto":
            self.facts |= self._measure_precision(trainer)
        trainer.steps.bf16 = self.facts["precision"] == "bfloat16"
        return trainer

    def _measure_precision(self, trainer: Trainer) -> Plain:
        """The faster precision and what was measured, once per run: the leader measures, and saves it for the others."""
        if not self.process_group.is_leader:
            known = read_facts(self.folder)
            return {name: known[name] for name in MEASURED if name in known}
        found: Plain = {"precision": "float32"}  # a short run is over before a measurement pays
        if trainer.total >= MIN_STEPS:
            seconds = time_steps(trainer, ("float32", "bfloat16"))
            fast, slow = sorted(seconds, key=lambda name: seconds[name])
            found = {"precision": fast, "seconds_per_step": {name: round(s, 4) for name, s in seconds.items()}}
            self.progress.say(
                f"chosen: {fast}, {seconds[fast]:.2g} s per step on this machine against {seconds[slow]:.2g} s in {slow} "
                f"(set train.precision to choose yourself)"
            )
        save_facts(self.folder, **found)
        return found

    def _net(self, task: Task) -> Net:
        notes: list[str] = []
        spec = task.adapt_spec(self.recipe.model_spec(task.model_arguments(), notes))
        if self.device == "cpu":
            check_model_memory(
                self.recipe,
                task,
                lambda model: task.adapt_spec(
                    dataclasses.replace(self.recipe, model=dict(model)).model_spec(task.model_arguments())
                ),
            )
        net = spec.build(self.recipe.train.seed)
        for line in notes:
            self.progress.say(line)
        if self.start is not None:
            self.initialization = initialize_from(net, self.start, str(self.request.start), task.files())
        if self.recipe.train.finetune is not None:
            new = () if self.initialization is None else self.initialization.new
            self.recipe.train.finetune.apply(net, new, self.recipe.train.seed)
        return net.to(self.device)

    def _with_batch_tokens(self, net: Net, task: Task, data: TrainData) -> Train:
        """The `train` settings; `batch_tokens: auto` becomes the batch that fits into memory, measured once per run."""
        train = self.recipe.train
        if train.batch_tokens != "auto":
            return train
        found, free = read_facts(self.folder).get("batch_tokens"), free_memory()
        if found is None:
            found = measure_batch_tokens(net, task, data.train, train, free)
            save_facts(self.folder, batch_tokens=found)
            self.progress.say(
                f"chosen: batches of {found:,} tokens, which fit into {free / 2**30:.1f} GiB of free memory"
            )
        return dataclasses.replace(train, batch_tokens=found)

    # ------------------------------------------------------------------------------------------------ training

    def _train(self, trainer: Trainer, dataset: Dataset) -> Path:
        artifacts, final = Artifacts(self.folder, self.recipe, self.facts, trainer), self.folder / FINAL
        resumed = trainer.resume(self.changed)
        trainer.copies = copy_description(self.folder, trainer.task.files())
        resumed = [*resumed, *self._restore(artifacts)] if resumed else self._begin(trainer)
        progress = self.progress = Progress(trainer.total, trainer.state.step, quiet=self.quiet)
        with closing(trainer.log), progress:
            for line in resumed or self._describe(trainer):
                progress.say(line)
            if not resumed:
                self._log_start(trainer, dataset)
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
            done = self._finish(artifacts)
            if skipped := sum(event["event"] == "skip" for event in read_log(self.folder / LOG)):
                progress.say(
                    f"{skipped} of {trainer.state.step} steps were not finite and were skipped; {LOG} lists their examples"
                )
            progress.say(f"done: {render_scores(done['scores'], done.get('decoding', ''))}  in {final}")
        artifacts.write_report(dataset, done["examples"])
        for line in self._next_steps():
            progress.say(line)
        return final

    def _restore(self, artifacts: Artifacts) -> list[str]:
        """Make damaged models of the run again. What cannot be made again is left out only with --anyway."""
        trainer = artifacts.trainer
        messages, lost = restore_models(artifacts, done=self._done() is not None)
        if lost and not self.request.anyway:
            raise CheckpointError(
                f"{'; '.join(lost)}; no checkpoint has these weights any more. Start over with --fresh, or continue without "
                "them with --anyway: later validations decide which model is the best"
            )
        if lost:
            trainer.log.write("lost", trainer.state.step, models=lost)
            trainer.save()
        return [*messages, *(f"{line}; continuing without it" for line in lost)]

    def _finish(self, artifacts: Artifacts) -> Plain:
        """Write the final model unless it is there and intact; returns the `done` event."""
        final, known = self.folder / FINAL, self._done()
        fault = find_fault(final)
        if known is not None and fault is None:
            return known
        if known is not None:
            self.progress.say(f"{fault}; writing it again")
        done, log = artifacts.write_final(), artifacts.trainer.log
        if known is None or known["scores"] != done["scores"]:
            log.drop("done", artifacts.trainer.state.step)  # a damaged one
            log.write("done", artifacts.trainer.state.step, **done)
            log.sync()
            save_facts(self.folder, **{FINISHED: log.digest()})
        return done

    def _begin(self, trainer: Trainer) -> list[str]:
        """Start a run that has no checkpoint. Returns messages if it is finished nevertheless; no model is overwritten."""
        saved = self._was_saved(trainer.save_every)
        intact = [name for name in (FINAL, BEST) if saved and find_fault(self.folder / name) is None]
        if not self.changed and self._done() and FINAL in intact:
            trainer.state.finished = True
            return ["this run is finished; its checkpoints are gone, so no step can be added"]
        if saved:
            model = (
                ""
                if not intact
                else (f", or start a new run from its model with --from {self.folder / intact[0]} and another --out")
            )
            raise CheckpointError(
                f"{self.folder} holds the model of a run, but no checkpoint to continue from: start over with --fresh{model}"
            )
        if self.changed:
            self._update(trainer)
            self.changed = []
        trainer.log.rewind(-1)
        return []

    def _was_saved(self, every: int) -> bool:
        """Whether the run had a checkpoint once. A run killed before step `every` had none."""
        if (self.folder / FINAL).exists():
            return True
        steps = [event["step"] for event in read_log(self.folder / LOG)]
        return (self.folder / BEST).exists() and (not steps or max(steps) > every)

    def _change(self, trainer: Trainer) -> None:
        """Continue with changed settings. The checkpoint is saved first, then the recipe, so that no crash loses either."""
        self.progress.say(f"changed since the run was started: {'; '.join(self.changed)}")
        if not trainer.state.finished:
            step = trainer.state.step + 1
            self.progress.say(
                f"the schedule is now that of a run of {trainer.total:,} steps; "
                f"the learning rate of step {step:,} is {trainer.rate(step):.3g}"
            )
        trainer.log.write("changed", trainer.state.step, changes=self.changed)
        trainer.save()
        self._update(trainer)

    def _update(self, trainer: Trainer) -> None:
        """Replace the description of the run."""
        update_run(self.folder, self.recipe, self.facts)
        trainer.copies = copy_description(self.folder, trainer.task.files())

    def _done(self) -> Plain | None:
        """The `done` event of a finished run, unless something changed since."""
        ends = (event for event in reversed(read_log(self.folder / LOG)) if event["event"] in ("done", "changed"))
        last = next(ends, {"event": None})
        written = read_facts(self.folder).get(FINISHED)
        complete = last["event"] == "done" and last.keys() >= {"scores", "examples"}
        if not complete or (written is not None and Log(self.folder / LOG).has_changed(written)):
            return None
        return last

    def _log_start(self, trainer: Trainer, dataset: Dataset) -> None:
        facts = {key: value for key, value in self.facts.items() if key != "requested"}
        began: Plain = {"parameters": cost(trainer.net, 1).parameters, "total": trainer.total, **facts}
        began |= {} if self.initialization is None else {"weights": dataclasses.asdict(self.initialization)}
        began |= {"dropped": dataset.dropped} if dataset.dropped else {}
        trainer.log.write("start", 0, **began)

    def _describe(self, trainer: Trainer) -> list[str]:
        """What is printed before the first step: model, machine, length, time."""
        count, examples = cost(trainer.net, 1).parameters, trainer.data.train
        threads = f"{self.facts['threads']} thread{'s' * (self.facts['threads'] > 1)}"
        where = f"{threads} of {machine().processor}" if self.device == "cpu" else self.device
        left = f" ({examples.left_out:,} too long and left out)" if examples.left_out else ""
        learning = sum(p.numel() for p in trainer.net.parameters() if p.requires_grad)
        part = f", {learning:,} of them trained" if learning < count else ""
        timed = self.facts.get("seconds_per_step", {}).get(self.facts["precision"])
        seconds = trainer.total * timed if timed else None if self.quiet else estimate_seconds(trainer)
        validations = -(-trainer.total // trainer.validate_every)
        plus = f" plus {validations} validation{'s' * (validations > 1)}"
        time = "" if seconds is None else f", about {duration(seconds)} on this machine{plus}"
        return [
            *(() if self.initialization is None else self.initialization.lines(str(self.request.start))),
            f"model: {count:,} parameters{part}, {self.facts['precision']}, on {where}",
            f"training: {trainer.total:,} steps, {len(examples):,} examples{left}{time}; run folder {self.folder}",
        ]

    def _next_steps(self) -> list[str]:
        """Three commands to continue with."""
        folder = shlex.quote(str(self.folder))
        plugins = "".join(f" --plugin {shlex.quote(plugin)}" for plugin in self.request.plugins)
        return [
            f"use it:    regard run {folder} \"INPUT\"{plugins}",
            f"score it:  regard eval {folder} DATA{plugins}",
            f"see it:    open {shlex.quote(str(self.folder / REPORT))} in a browser",
        ]  # fmt: skip


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
