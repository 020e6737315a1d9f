"""A training request, and the recipe it amounts to.

The recipe of a run has four layers, later ones winning: defaults, what the data suggests (`auto: true`), the recipe file,
and `--set`.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from regard.errors import SpecError
from regard.families.expand import switch_family
from regard.files.folder import Folder
from regard.recipes.merge import merge, merge_settings, read_recipe
from regard.serialization.model_folder import read_config
from regard.spec import Plain
from regard.tasks import find
from regard.tasks.common.task import Dataset, Task
from regard.tasks.common.training_hooks import advise
from regard.training.finetune import inherit_settings
from regard.training.recipe import Recipe, check_placement, list_overrides, select_supported
from regard.training.run.run_folder import read_run

LENGTH = ("steps", "epochs")
"""The keys of `train` that say how long to train."""


@dataclasses.dataclass(frozen=True)
class TrainRequest:
    """Request of a user: a recipe, files, settings, a model to start from."""

    recipe: str | Mapping[str, object]
    data: Sequence[str] = ()
    valid: Sequence[str] = ()
    set: Mapping[str, object] = dataclasses.field(default_factory=dict)
    start: str | None = None
    """Model folder with the initial weights (`--from`)."""
    out: str | None = None
    fresh: bool = False
    anyway: bool = False
    """Continue a run although its recipe, corpus, plugins, threads or torch changed."""
    device: str = "auto"
    quiet: bool = False
    tensorboard: bool = False
    plugins: Sequence[str] = ()
    """Plugin files, already loaded by the command line; kept to print the command again and to compare their code."""

    @property
    def folder(self) -> Path:
        """The run folder."""
        name = self.recipe if isinstance(self.recipe, str) else "run"
        return Path(self.out or f"runs/{Path(name).stem}")

    @property
    def command(self) -> str:
        """The equivalent command line."""
        return shlex.join(self.words)

    @property
    def words(self) -> list[str]:
        """The words of the equivalent command line."""
        words = ["regard", "train", self.recipe if isinstance(self.recipe, str) else "RECIPE", *self.data]
        for flag, values in (("--valid", self.valid), ("--set", [f"{k}={_format(v)}" for k, v in self.set.items()])):
            words += [w for value in values for w in (flag, value)]
        words += ["--from", self.start] if self.start else []
        words += ["--out", self.out] if self.out else []
        words += ["--device", self.device] if self.device != "auto" else []
        words += ["--tensorboard"] if self.tensorboard else []
        words += [w for plugin in self.plugins for w in ("--plugin", plugin)]
        return words


def build_recipe(request: TrainRequest, start: Folder | None, notes: list[str] | None = None) -> Plain:
    """Merge the recipe with the files and settings of the request; what `auto` leaves open stays open.

    What the settings imply without saying so is added to `notes`.
    """
    _check_text(request.words)
    requested = read_recipe(request.recipe) if isinstance(request.recipe, str) else merge(request.recipe)
    requested |= {"task": request.set["task"]} if "task" in request.set else {}
    if start is not None:
        requested.setdefault("task", read_config(start)["task"])
    if "task" not in requested:
        raise SpecError(
            "task is missing: name one, or give a model to start from (--from MODEL), whose task is then used"
        )
    if request.data or request.valid:
        requested = merge(requested, {"data": find(requested["task"]).configure_data(request.data, request.valid)})
    if start is not None:
        under, over = inherit_settings(start, requested["task"], find(requested["task"]).Settings)
        requested = {**merge(under, requested, over), "model": {"spec": read_config(start)["model"]}}
    chosen = merge_settings(request.set)
    if isinstance(model := requested.get("model"), Mapping) and isinstance(changes := chosen.get("model"), Mapping):
        requested["model"] = switch_family(model, changes, [] if notes is None else notes)
    requested = merge(_drop_overruled_length(requested, chosen), chosen)
    if isinstance(requested["task"], str):
        check_placement(requested, find(requested["task"]).Settings)
    return requested


def complete_recipe(
    requested: Plain, kind: type[Task], dataset: Dataset, *, auto: bool, start: bool, say: Callable[[str], None]
) -> Recipe:
    """The complete recipe: with `auto`, what the data suggests under what was asked for. A model to `start` from stays."""
    suggested: Plain = {}
    if auto:
        settings = kind.Settings.parse(requested.get("data", {}), "data")
        advice = advise(kind, settings, dataset, requested)
        for reason in advice.reasons:
            say(f"chosen: {reason}")
        suggested = {"train": advice.recipe["train"]} if start else {**advice.recipe}
        if any(requested.get("train", {}).get(name) is not None for name in LENGTH):
            suggested["train"] = {key: value for key, value in suggested["train"].items() if key not in LENGTH}
        if "model" in suggested:
            suggested["model"] = select_supported(suggested["model"], requested.get("model", {}))
        if own := list_overrides(suggested, requested):
            say(f"set by you instead: {', '.join(own)}")
    whole = Recipe.parse(merge(suggested, requested))
    return dataclasses.replace(whole, data=kind.Settings.parse(whole.data, "data").plain())


def reuse_recipe(folder: Path, requested: Plain) -> Recipe | None:
    """The recipe of an earlier run of the same request, perhaps of another length; None if the request is another one.

    What `auto` chose for a run stays: a longer run keeps its warm-up, and nothing is decided twice.
    """
    found = read_run(folder)
    before = None if found is None else found[0].get("requested")
    if found is None or before is None:
        return None
    now = json.loads(json.dumps(requested, default=str))
    old_length, new_length = _pop_length(before), _pop_length(now)
    if before != now or (old_length and not new_length):
        return None
    recipe = found[1]
    if new_length:
        recipe["train"] |= {name: new_length.get(name) for name in LENGTH}
    return Recipe.parse(recipe)


def _pop_length(requested: Plain) -> Plain:
    train = requested.get("train", {})
    found = {name: train.pop(name, None) for name in LENGTH}
    return {name: value for name, value in found.items() if value is not None}


def fill_open_settings(requested: Plain) -> Plain:
    """Fill what `auto` decides later (how long, which kinds), so that the rest can be checked before data is read."""
    whole = merge({"train": {"epochs": 1}}, requested)
    if isinstance(whole["train"], dict):
        for name in ("optimizer", "schedule"):
            part = whole["train"].get(name)
            if isinstance(part, dict) and "kind" not in part:
                del whole["train"][name]
    return whole


def _drop_overruled_length(requested: Plain, chosen: Mapping[str, object]) -> Plain:
    """Setting one of `train.steps` and `train.epochs` replaces the recipe's other one; set both to stop at the first."""
    requested_train, train = requested.get("train"), chosen.get("train")
    if not isinstance(train, Mapping) or not isinstance(requested_train, Mapping):
        return requested
    given = [name for name in LENGTH if train.get(name) is not None]
    dropped = {name for name in LENGTH if name not in train} if given else set()
    return {**requested, "train": {key: value for key, value in requested_train.items() if key not in dropped}}


def _check_text(words: Sequence[str]) -> None:
    """Refuse arguments that are not UTF-8: recipe and model card quote them. Python decodes them to lone surrogates."""
    if bad := [word for word in words if any("\ud800" <= letter <= "\udfff" for letter in word)]:
        raise SpecError(f"{', '.join(map(ascii, bad))} is not UTF-8 and cannot be stored in the run; rename the file")


def _format(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
