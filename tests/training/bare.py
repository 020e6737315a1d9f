"""A trainer without a run around it: the recipe `copy` in float64, to be looked at step by step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.recipes.merge import merge, nest, read_recipe
from regard.tasks.translate import Translate, TranslateData
from regard.training.recipe import Recipe
from regard.training.run.checkpoint import Checkpoints
from regard.training.run.interrupt import InterruptHandler
from regard.training.run.log import Log
from regard.training.run.progress_bar import Progress
from regard.training.trainer import TrainData, Trainer
from tests.training.small import COPY, TINY


def trainer(folder: Path, **changes: Any) -> Trainer:
    """A trainer of the recipe `copy` in float64, with settings as in `tiny`."""
    settings = {**COPY, **TINY, **{path.replace("__", "."): value for path, value in changes.items()}}
    recipe = Recipe.parse(merge(read_recipe("copy"), *(nest(path, value) for path, value in settings.items())))
    data = TranslateData.parse(recipe.data)
    raw = Translate.read(data, 1)
    task = Translate.prepare(data, raw)
    net = recipe.model_spec(task.model_arguments()).build(1).double()
    examples = TrainData(task.encode(raw.train), task.encode(raw.valid), task.eval_sets(raw.valid))
    log, checkpoints = Log(folder / "log.jsonl"), Checkpoints(folder / "checkpoints")
    return Trainer(net, task, examples, recipe.train, checkpoints=checkpoints, log=log, search=recipe.decode)


def fit(made: Trainer, on_better: Callable[[], None] = lambda: None) -> bool:
    return made.fit(InterruptHandler(), Progress(1, quiet=True), on_better)


def weights(made: Trainer) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in made.net.named_parameters()}


def spy_on_steps(made: Trainer) -> list[tuple[float, dict[str, Tensor]]]:
    """The rate and the gradients of every step that is taken from now on."""
    seen: list[tuple[float, dict[str, Tensor]]] = []
    real = made.steps.optimizer.step

    def step() -> None:  # type: ignore[misc]
        grads = {name: p.grad.clone() for name, p in made.net.named_parameters() if p.grad is not None}
        seen.append((made.steps.optimizer.param_groups[0]["lr"], grads))
        real()

    made.steps.optimizer.step = step  # type: ignore[method-assign, assignment]
    return seen
