"""From a recipe to a trainer: vocabulary, model, batches.

What is learned from the data or measured on the machine (vocabulary, batch size, precision) is kept in the run folder, so a
resumed run has the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import torch

from regard.files.folder import Folder, find_fault, read_folder, write_folder
from regard.machine import free_memory
from regard.model.net import Net
from regard.serialization.model_folder import CHECKPOINTS, LOG, TENSORBOARD, TOKENS, VOCABULARY
from regard.spec import Plain
from regard.tasks.common.capabilities import eval_sets
from regard.tasks.common.task import Dataset, Task
from regard.tasks.common.training_hooks import encode_to, prepare_from
from regard.training.finetune import Initialization, initialize_from
from regard.training.recipe import Recipe, Train
from regard.training.request import TrainRequest
from regard.training.run.checkpoint import Checkpoints
from regard.training.run.log import Log
from regard.training.run.repair import find_vocabulary
from regard.training.run.run_folder import MEASURED, read_facts, save_facts
from regard.training.step.batch_size import measure_batch_tokens
from regard.training.step.data_parallel import ProcessGroup
from regard.training.step.memory_budget import check_batch_memory, check_model_memory
from regard.training.step.time_estimate import MIN_STEPS, time_steps
from regard.training.trainer import TrainData, Trainer


@dataclasses.dataclass
class TrainerBuilder:
    """Builds the trainer of a run: first its task, then the model and the rest."""

    request: TrainRequest
    recipe: Recipe
    facts: Plain
    start: Folder | None
    process_group: ProcessGroup
    say: Callable[[str], None]
    initialization: Initialization | None = None
    """Weights that came from the initial model; known when the model is built."""

    @property
    def folder(self) -> Path:
        return self.request.folder

    def prepare_task(self, kind: type[Task], dataset: Dataset) -> Task:
        """The task with its vocabulary: that of the initial model, or the run's own, learned once."""
        settings, kept = kind.Settings.parse(self.recipe.data), self.folder / VOCABULARY
        fault = find_fault(kept)
        if fault is None:
            return kind.load(settings, read_folder(kept).files)
        if found := find_vocabulary(self.folder):
            task = kind.load(settings, found[1])
            self.say(f"{fault}; written again from {found[0]}")
        elif self.start is None:
            task = kind.prepare(settings, dataset)
        else:
            task = prepare_from(kind, settings, dataset, self.start.files)
        write_folder(kept, task.files(), damaged=True)
        return task

    def build_trainer(self, task: Task, dataset: Dataset, logs: Path | None = None) -> Trainer:
        """The trainer of a new model; its log is in `logs`, by default the run folder."""
        net = self._build_net(task)
        torch.manual_seed(self.recipe.train.seed)
        tokens = self.folder / TOKENS
        train, valid = (
            encode_to(task, tokens / name, part, dataset.fingerprint)
            for name, part in (("train", dataset.train), ("valid", dataset.valid))
        )
        data = TrainData(train, valid, eval_sets(task, dataset.valid))
        settings = self._with_batch_tokens(net, task, data)
        if self.facts["device"] == "cpu":
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

    def _build_net(self, task: Task) -> Net:
        notes: list[str] = []
        spec = task.adapt_spec(self.recipe.model_spec(task.model_arguments(), notes))
        if self.facts["device"] == "cpu":
            check_model_memory(
                self.recipe,
                task,
                lambda model: task.adapt_spec(
                    dataclasses.replace(self.recipe, model=dict(model)).model_spec(task.model_arguments())
                ),
            )
        net = spec.build(self.recipe.train.seed)
        for line in notes:
            self.say(line)
        if self.start is not None:
            self.initialization = initialize_from(net, self.start, str(self.request.start), task.files())
        if self.recipe.train.finetune is not None:
            new = () if self.initialization is None else self.initialization.new
            self.recipe.train.finetune.apply(net, new, self.recipe.train.seed)
        return net.to(self.facts["device"])

    def _with_batch_tokens(self, net: Net, task: Task, data: TrainData) -> Train:
        """The `train` settings; `batch_tokens: auto` becomes the batch that fits into memory, measured once per run."""
        train = self.recipe.train
        if train.batch_tokens != "auto":
            return train
        found, free = read_facts(self.folder).get("batch_tokens"), free_memory()
        if found is None:
            found = measure_batch_tokens(net, task, data.train, train, free)
            save_facts(self.folder, batch_tokens=found)
            self.say(f"chosen: batches of {found:,} tokens, which fit into {free / 2**30:.1f} GiB of free memory")
        return dataclasses.replace(train, batch_tokens=found)

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
            self.say(
                f"chosen: {fast}, {seconds[fast]:.2g} s per step on this machine against {seconds[slow]:.2g} s in {slow} "
                f"(set train.precision to choose yourself)"
            )
        save_facts(self.folder, **found)
        return found
