"""Facts about a recipe that a study has before it trains.

The recipe is completed as training would complete it, the data is read and encoded once for all contenders that share it, and
a few steps are timed for the forecast.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from regard.model.cost import Cost, cost
from regard.model.model_spec import ModelSpec
from regard.recipes.merge import merge, nest
from regard.spec import Plain
from regard.tasks import find
from regard.tasks.common.capabilities import eval_sets
from regard.tasks.common.task import Dataset, Examples, Task
from regard.training.recipe import Recipe
from regard.training.request import TrainRequest, build_recipe, complete_recipe
from regard.training.run.checkpoint import Checkpoints
from regard.training.run.log import Log
from regard.training.step.batch_size import find_longest
from regard.training.step.time_estimate import time_steps
from regard.training.train import SPLIT_SEED
from regard.training.trainer import TrainData, Trainer

FIXED: Plain = {"train.precision": "float32", "train.threads": 1, "train.log_every": 10}
"""Settings of every cell, unless the user sets them: results must not depend on how busy the machine is."""


@dataclasses.dataclass(frozen=True)
class PreparedData:
    """Data as one task reads it, its vocabulary, and its encoded examples."""

    dataset: Dataset
    task: Task
    train: Examples
    valid: Examples

    @property
    def length(self) -> int:
        """The mean length of an example in tokens, on its longer side."""
        _, _, total = find_longest(self.train)
        return max(1, round(total / len(self.train)))


@dataclasses.dataclass
class Preparation:
    """Completes recipes; data that several of them share is read once."""

    _corpora: dict[str, PreparedData] = dataclasses.field(default_factory=dict)

    def complete(self, request: TrainRequest) -> tuple[Recipe, PreparedData]:
        """The complete recipe of a request, and its data."""
        asked = build_recipe(dataclasses.replace(request, set={**FIXED, **request.set}), None)
        auto = bool(asked.pop("auto", False))
        kind = find(asked["task"])
        settings = kind.Settings.parse(asked.get("data", {}), "data")
        dataset = self._read(asked["task"], settings.plain())
        recipe = complete_recipe(asked, kind, dataset, auto=auto, start=False, say=lambda _: None)
        return recipe, self.corpus(recipe)

    def corpus(self, recipe: Recipe) -> PreparedData:
        """The data of a complete recipe."""
        key = json.dumps([recipe.task, recipe.data], sort_keys=True, default=str)
        if key not in self._corpora:
            kind = find(recipe.task)
            dataset = self._read(recipe.task, recipe.data)
            task = kind.prepare(kind.Settings.parse(recipe.data), dataset)
            self._corpora[key] = PreparedData(dataset, task, task.encode(dataset.train), task.encode(dataset.valid))
        return self._corpora[key]

    def _read(self, task: str, data: Plain) -> Dataset:
        kind = find(task)
        return kind.read(kind.Settings.parse(data, "data"), SPLIT_SEED)


def model_of(recipe: Recipe, corpus: PreparedData) -> ModelSpec:
    """The model that a recipe builds on this data."""
    return corpus.task.adapt_spec(recipe.model_spec(corpus.task.model_arguments()))


def cost_of(spec: ModelSpec, length: int) -> Cost:
    """Parameters and FLOPs of a model for texts of this length; nothing is allocated."""
    with torch.device("meta"):
        return cost(spec.build(), length)


def change(recipe: Recipe, changes: Mapping[str, object]) -> Recipe:
    """A recipe with other settings, by path."""
    return Recipe.parse(merge(recipe.plain(), *(nest(path, value) for path, value in changes.items())))


def set_width(recipe: Recipe, width: int) -> dict[str, object]:
    """The changes that give a recipe another width, with a feed-forward layer in proportion."""
    old, hidden = recipe.model.get("width"), recipe.model.get("hidden")
    if isinstance(old, int) and isinstance(hidden, int):
        return {"model.width": width, "model.hidden": round(hidden / old * width)}
    return {"model.width": width}


@dataclasses.dataclass(frozen=True)
class Timing:
    """Length of a run: its optimizer steps, and seconds of one."""

    steps: int
    seconds_per_step: float

    @property
    def seconds(self) -> float:
        return self.steps * self.seconds_per_step


def time_recipe(recipe: Recipe, corpus: PreparedData) -> Timing:
    """Time a few steps of a run with the threads that it will have."""
    before = torch.get_num_threads()
    torch.set_num_threads(recipe.train.threads or before)
    try:
        with TemporaryDirectory() as scratch, torch.random.fork_rng(devices=[]):
            data = TrainData(corpus.train, corpus.valid, eval_sets(corpus.task, corpus.dataset.valid))
            trainer = Trainer(
                model_of(recipe, corpus).build(recipe.train.seed), corpus.task, data, recipe.train,
                checkpoints=Checkpoints(Path(scratch) / "checkpoints"), log=Log(Path(scratch) / "log.jsonl"),
                search=recipe.decode,
            )  # fmt: skip
            precision = recipe.train.precision
            return Timing(trainer.total, time_steps(trainer, [precision])[precision])
    finally:
        torch.set_num_threads(before)
