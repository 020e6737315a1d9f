"""Summaries of models: shapes, parameters, costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regard import families
from regard.data.pairs import Pairs
from regard.engine.choose_engine import EngineChoice, choose_engine
from regard.errors import SpecError, UnknownName
from regard.families.expand import expand_model, model_keys, switch_family
from regard.model.net import Net
from regard.model.tree import summary, tree
from regard.recipes.merge import list_recipes, merge, merge_settings, read_recipe
from regard.report.page import pre
from regard.serialization.load import load_model
from regard.serialization.model_folder import find_model
from regard.spec import Plain
from regard.tasks import find
from regard.tasks.common.task import Dataset
from regard.tasks.common.training_hooks import advise

MAX_LENGTH = 1 << 20
"""Maximum number of tokens that costs are given for."""
TYPICAL_PAIRS = 30_000
"""The corpus size that a model is shown for if training would choose it from the data (Multi30k has 29,000)."""
TYPICAL_LINE = "a sentence as long as most of them are in such a corpus"


@dataclass(frozen=True)
class ModelSummary:
    """A model without weights, and what a reader should know about its numbers."""

    net: Net
    length: int
    """The number of tokens that costs are given for."""
    remark: str = ""
    """Statement of the paper about the number of parameters."""
    notes: Sequence[str] = ()

    def plain(self) -> dict[str, object]:
        """Parameters, FLOPs, state, parts, attention plans, engine and the spec, ready for JSON."""
        return {**summary(self.net, self.length), "engine": dataclasses.asdict(self.engine)}

    def render(self) -> str:
        """The model as a tree, and the engine that would run it."""
        engine = f"engine: {self.engine.name} ({self.engine.reason})"
        return f"{tree(self.net, self.length, self.remark)}\n{engine}"

    @property
    def engine(self) -> EngineChoice:
        """Engine that `run` would use on this machine, and why."""
        return choose_engine(self.net)

    def __str__(self) -> str:
        return self.render()

    def _repr_html_(self) -> str:
        return pre(self.render())


def show(what: str | Path, *, set: Mapping[str, object] | None = None, length: int = 32) -> ModelSummary:
    """Summarize a published size ("gpt2"), a recipe or a model folder; no weights are allocated.

    `set` changes settings of the model: `{"model.width": 128}`.
    """
    if not 1 <= length <= MAX_LENGTH:
        raise SpecError(f"length should be 1 to {MAX_LENGTH:,} tokens, got {length}")
    changes = merge_settings({path: value for path, value in (set or {}).items() if path.startswith("model.")})
    model, facts, notes = _find_model_settings(str(what), changes.get("model", {}))
    for path in set or {}:
        if not path.startswith("model."):
            near = f"; did you mean 'model.{path}'?" if path.split(".")[0] in model_keys(model) else ""
            raise SpecError(f"show looks at the model only: set takes model.… here, got {path!r}{near}")
    with torch.device("meta"):  # shapes are enough: the largest model takes no memory
        net = expand_model(model, facts, notes).build()
    return ModelSummary(net, length, "" if set else _quote_paper(str(what)), notes)


def _quote_paper(what: str) -> str:
    """The number of parameters in the paper, for a published size."""
    figure = families.paper(what) if what in families.sizes() else None
    if figure is None:
        return ""
    return f"; the paper says {figure / 1e6:.4g} M" if figure < 1e9 else f"; the paper says {figure / 1e9:.4g} G"


def _find_model_settings(what: str, changes: Plain) -> tuple[Plain, Mapping[str, object], list[str]]:
    """The `model` part of a recipe for what was named, with changes; facts that data would give; and notes."""
    notes: list[str] = []
    if Path(what).is_dir():
        return merge({"spec": load_model(find_model(what))[0].spec.plain()}, changes), {}, notes
    sizes = families.sizes()
    if what in sizes:
        return merge(switch_family({"family": sizes[what], "size": what}, changes, notes), changes), {}, notes
    if what not in list_recipes() and Path(what).suffix not in (".yaml", ".yml"):
        raise UnknownName("size, recipe or model folder", what, [*sizes, *list_recipes()])
    recipe = read_recipe(what)
    model = recipe.get("model") or {}
    if not isinstance(model, Mapping):
        raise SpecError(
            f"model in {what} should be a mapping such as {{family: transformer, width: 128}}, got {model!r}"
        )
    model = merge(switch_family(model, changes, notes), changes)
    advised = _advise({**recipe, "model": model}) if recipe.get("auto") else None
    if advised is None:
        return model, {}, [*notes, "the vocabulary is chosen from the data; this is the family's default until then"]
    from regard.training.recipe import select_supported  # here: showing a model folder needs nothing of training

    vocab = advised["data"]["tokenizer"]["vocab"]
    note = (
        f"training chooses size and vocabulary from the data; this is its choice for {TYPICAL_PAIRS:,} sentence pairs"
    )
    return merge(select_supported(advised["model"], model), model), {"vocab": vocab}, [*notes, note]


def _advise(recipe: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what training would choose for a corpus of typical size; None if the model does not depend on it."""
    kind = find(str(recipe["task"]))
    pairs = Pairs([TYPICAL_LINE] * TYPICAL_PAIRS, [TYPICAL_LINE] * TYPICAL_PAIRS)
    settings = kind.Settings.parse(recipe.get("data") or {}, "data")
    advice = advise(kind, settings, Dataset([pairs], [], "", {}), dict(recipe))
    return advice.recipe if "model" in advice.recipe else None
