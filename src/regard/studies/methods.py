"""The contenders of a comparison, and its terms."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from regard.errors import SpecError, UnknownName
from regard.recipes.merge import read_recipe
from regard.studies.match import Dial
from regard.studies.preparation import PreparedData, Timing, cost_of, model_of
from regard.studies.significance import VERDICT_SEEDS
from regard.training.recipe import Recipe

Match = Literal["parameters", "flops", "steps", "time"]
MATCHES: tuple[Match, ...] = ("steps", "parameters", "flops", "time")


@dataclasses.dataclass(frozen=True)
class NamedRecipe:
    """A contender as asked for: a name, a recipe and settings."""

    name: str
    recipe: str | Mapping[str, object]
    set: Mapping[str, object] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Terms:
    """The terms of a comparison, declared before it starts."""

    seeds: int = VERDICT_SEEDS
    match: Match = "steps"
    resize: Dial = "width"
    tune: bool = False
    metric: str | None = None
    delta: float | None = None
    paired: bool = False
    probes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.seeds < 2:
            raise SpecError(f"a comparison needs at least 2 seeds, and {VERDICT_SEEDS} for a verdict; got {self.seeds}")
        if self.match not in MATCHES:
            raise UnknownName("way to match", self.match, MATCHES)


@dataclasses.dataclass
class Method:
    """A contender that is ready to run: its complete recipe, its data, and what was done to match it."""

    name: str
    recipe: Recipe
    corpus: PreparedData
    notes: list[str] = dataclasses.field(default_factory=list)
    timing: Timing | None = None

    @property
    def parameters(self) -> int:
        return cost_of(model_of(self.recipe, self.corpus), 1).parameters

    @property
    def flops(self) -> float:
        """FLOPs per token in training."""
        return 3 * cost_of(model_of(self.recipe, self.corpus), self.corpus.length).flops


def parse_vary(texts: Sequence[str]) -> list[tuple[str, list[str]]]:
    """`model.norm=pre,post` as a path and its values; commas inside brackets do not separate."""
    out = []
    for text in texts:
        path, equals, values = text.partition("=")
        found, depth, word = list[str](), 0, ""
        for letter in f"{values},":
            depth += (letter in "[{") - (letter in "]}")
            if letter == "," and depth == 0:
                found.append(word.strip())
                word = ""
            else:
                word += letter
        if not equals or not path or not all(found) or len(set(found)) < 2:
            raise SpecError(
                f"--vary takes PATH=VALUE,VALUE with two values or more, such as model.norm=pre,post; got {text!r}"
            )
        out.append((path, found))
    return out


def list_entries(recipes: Sequence[str], vary: Sequence[str], set: Mapping[str, object]) -> list[NamedRecipe]:
    """The contenders of a command line; the first one is the baseline."""
    varied = parse_vary(vary)
    if varied and len(recipes) > 1:
        raise SpecError(f"--vary changes one recipe, got {len(recipes)}: name one, or leave --vary out")
    if varied:
        paths = [path for path, _ in varied]
        chosen = itertools.product(*(values for _, values in varied))
        return [
            NamedRecipe(" ".join(values), recipes[0], {**set, **dict(zip(paths, values, strict=True))})
            for values in chosen
        ]
    if len(recipes) < 2:
        raise SpecError("a comparison needs two recipes, or one with --vary PATH=VALUE,VALUE")
    names = [Path(name).stem for name in recipes]
    if len({*names}) < len(names):
        raise SpecError(f"contenders should have different names, got {', '.join(names)}")
    return [NamedRecipe(name, recipe, set) for name, recipe in zip(names, recipes, strict=True)]


def check_tasks(entries: Sequence[NamedRecipe]) -> None:
    """Refuse contenders with different tasks, before any data is read."""
    recipes = [read_recipe(e.recipe) if isinstance(e.recipe, str) else e.recipe for e in entries]
    tasks = [str(e.set.get("task", recipe.get("task"))) for e, recipe in zip(entries, recipes, strict=True)]
    for entry, task in zip(entries, tasks, strict=True):
        if task != tasks[0]:
            raise SpecError(
                f"{entries[0].name} and {entry.name} cannot be compared: the task of one is {tasks[0]}, of the other {task}"
            )


def find_rate(recipe: Recipe) -> tuple[str, float]:
    """The path and value of the learning rate."""
    schedule = recipe.train.schedule
    name = next(name for name in ("lr", "factor") if hasattr(schedule, name))
    return f"train.schedule.{name}", float(getattr(schedule, name))
