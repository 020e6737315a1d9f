"""A small run of every task and every family there is, with everything that moves: found in their registries."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard import families, tasks
from regard.families.expand import family_arguments
from regard.nn.blocks.patches import Patches
from regard.nn.blocks.sentences import Sentences
from regard.training.request import TrainRequest
from tests.laws.tasks import TASK, order_of
from tests.laws.uses import USES, Use
from tests.training.small import HARD, TINY

LENGTH: dict[str, Any] = {"train.steps": 18, "train.save_every": 3, "train.validate_every": 6, "train.log_every": 1}
SIZES: dict[str, Any] = {"width": 16, "depth": 1, "heads": 2, "hidden": 32, "head_width": 8, "dropout": 0.2}
Order = Callable[[Path, Path], TrainRequest]
"""A request, given a folder for the data and the run folder."""


def cases() -> dict[str, Order]:
    """Every example of every task, and every family in a task that suits it."""
    found: dict[str, Order] = {}
    for task, row in TASK.items():
        for name, example in row.items():
            found[f"{task}: {name}"] = lambda files, out, example=example: _hard(order_of(example, files, out))
    found |= {str(use): lambda files, out, use=use: _hard(use.order(files, out)) for use in USES}
    missing = set(tasks.names()) - {name.partition(":")[0] for name in found}
    assert not missing, f"no example of {', '.join(missing)} in tests/laws/tasks.py or uses.py"
    return found | {f"family: {name}": _of_family(name) for name in families.names()}


def _hard(request: TrainRequest) -> TrainRequest:
    """The same with everything that moves; sizes and data stay as they are."""
    kept = {path: value for path, value in {**TINY, **HARD, **LENGTH}.items() if path.startswith("train.")}
    return dataclasses.replace(request, set={**request.set, **kept, "train.schedule.warmup": 1})


def _of_family(name: str) -> Order:
    """A family in the task that suits it: translation, language modeling, masked language modeling, images or stories."""
    spec = families.find(name)()
    known = family_arguments(name)
    model = {"family": name, **{key: value for key, value in SIZES.items() if key in known}}
    if isinstance(spec.embed, Patches):
        use: Use = next(use for use in USES if use.task == "image")
        return lambda files, out: _hard(dataclasses.replace(use, model={**model, "patch": 4}).order(files, out))
    if isinstance(spec.embed, Sentences):
        stories: Use = next(use for use in USES if use.task == "babi")
        return lambda files, out: _hard(dataclasses.replace(stories, model=model).order(files, out))
    task, example = ("mlm", "distilbert") if spec.decoder is None else ("lm", "file")
    if spec.encoder is not None and spec.decoder is not None:
        task, example = "translate", "copy"

    def order(files: Path, out: Path) -> TrainRequest:
        request = _hard(order_of(lambda folder: {**TASK[task][example](folder), "model": model}, files, out))
        return dataclasses.replace(
            request, set={path: value for path, value in request.set.items() if not path.startswith("model.")}
        )

    return order
