"""What a user asks for when a model is trained: a recipe, files, settings, a model to start from; and what that amounts to."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.errors import SpecError
from regard.files.folder import Folder
from regard.recipes.merge import merge, nest, read_recipe
from regard.serialization.model_folder import read_config
from regard.tasks import find
from regard.training.finetune import inherit_settings
from regard.training.recipe import check_placement


@dataclasses.dataclass(frozen=True)
class TrainRequest:
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
        return shlex.join(self.words)

    @property
    def words(self) -> list[str]:
        """The words of that command line."""
        words = ["regard", "train", self.recipe if isinstance(self.recipe, str) else "RECIPE", *self.data]
        for flag, values in (("--valid", self.valid), ("--set", [f"{k}={_said(v)}" for k, v in self.set.items()])):
            words += [w for value in values for w in (flag, value)]
        words += ["--from", self.start] if self.start else []
        words += ["--out", self.out] if self.out else []
        words += ["--device", self.device] if self.device != "auto" else []
        words += ["--tensorboard"] if self.tensorboard else []
        words += [w for plugin in self.plugins for w in ("--plugin", plugin)]
        return words


def build_recipe(request: TrainRequest, start: Folder | None) -> dict[str, Any]:
    """The recipe with the command line's files and settings laid over it."""
    _demand_text(request.words)
    asked = read_recipe(request.recipe) if isinstance(request.recipe, str) else merge(request.recipe)
    asked |= {"task": request.set["task"]} if "task" in request.set else {}
    if start is not None:
        asked.setdefault("task", read_config(start)["task"])
    if "task" not in asked:
        raise SpecError("task is missing: name one, or a model to go on with (--from MODEL), whose task it then is")
    if request.data or request.valid:
        asked = merge(asked, {"data": find(asked["task"]).configure_data(request.data, request.valid)})
    if start is not None:
        under, over = inherit_settings(start, asked["task"], find(asked["task"]).Settings)
        asked = {**merge(under, asked, over), "model": {"spec": read_config(start)["model"]}}
    for path, value in request.set.items():
        asked = merge(asked, nest(path, value))
    if isinstance(asked["task"], str):
        check_placement(asked, find(asked["task"]).Settings)
    return asked


def fill_open_settings(asked: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe as far as it can be checked before the data is read: advice may still say how long, and which kinds."""
    whole = merge({"train": {"epochs": 1}}, asked)
    if isinstance(whole["train"], dict):
        for name in ("optimizer", "schedule"):
            part = whole["train"].get(name)
            if isinstance(part, dict) and "kind" not in part:
                del whole["train"][name]
    return whole


def _demand_text(words: Sequence[str]) -> None:
    """A recipe and a card are UTF-8: what they quote must be so. Python hands on other bytes as halves of characters."""
    if bad := [word for word in words if any("\ud800" <= letter <= "\udfff" for letter in word)]:
        raise SpecError(
            f"{', '.join(map(ascii, bad))} is not UTF-8 and could not be written down; give the file another name"
        )


def _said(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
