"""What `regard show` is asked about: a size, a recipe or a model folder, as a module to look at."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from regard import families
from regard.data.pairs import Pairs
from regard.errors import SpecError, UnknownName
from regard.families.expand import expand_model, model_keys
from regard.model.net import Net
from regard.recipes.merge import list_recipes, merge, nest, read_recipe
from regard.serialization.load import load_model
from regard.serialization.model_folder import find_model
from regard.tasks import find
from regard.tasks.common.capabilities import advise
from regard.tasks.common.task import Dataset
from regard.training.recipe import select_supported

TYPICAL_PAIRS = 30_000
"""Size of the corpus that a model is shown for where training would choose it from the data (Multi30k has 29,000)."""
TYPICAL_LINE = "a sentence as long as most of them are in such a corpus"


def net_of(what: str, changes: Mapping[str, Any] | None = None) -> tuple[Net, list[str]]:
    """The module of a size, recipe or model folder, and what a reader should know about its numbers."""
    model, facts, said = _model_of(what)
    for path, value in (changes or {}).items():
        if not path.startswith("model."):
            near = f"; did you mean 'model.{path}'?" if path.split(".")[0] in model_keys(model) else ""
            raise SpecError(f"show looks at the model only: --set takes model.… here, got {path!r}{near}")
        model = merge({"model": model}, nest(path, value))["model"]
    with torch.device("meta"):  # shapes are all we look at: the largest model takes no memory
        return expand_model(model, facts, said).build(), said


def paper_of(what: str) -> str:
    """What the paper says of a published size, where it says something."""
    figure = families.paper(what) if what in families.sizes() else None
    if figure is None:
        return ""
    return f"; the paper says {figure / 1e6:.4g} M" if figure < 1e9 else f"; the paper says {figure / 1e9:.4g} G"


def _model_of(what: str) -> tuple[Mapping[str, Any], Mapping[str, Any], list[str]]:
    """The `model` section for what was named, facts that data would give, and notes."""
    if Path(what).is_dir():
        return {"spec": load_model(find_model(what))[0].spec.plain()}, {}, []
    sizes = families.sizes()
    if what in sizes:
        return {"family": sizes[what], "size": what}, {}, []
    if what not in list_recipes() and Path(what).suffix not in (".yaml", ".yml"):
        raise UnknownName("size, recipe or model folder", what, [*sizes, *list_recipes()])
    recipe = read_recipe(what)
    model = recipe.get("model") or {}
    if not isinstance(model, Mapping):
        raise SpecError(
            f"model in {what} should be a mapping such as {{family: transformer, width: 128}}, got {model!r}"
        )
    advised = _advise(recipe) if recipe.get("auto") else None
    if advised is None:
        return model, {}, ["the vocabulary is chosen from the data; this is the family's default until then"]
    vocab = advised["data"]["tokenizer"]["vocab"]
    return (
        merge(select_supported(advised["model"], model), model), {"vocab": vocab},
        [f"training chooses size and vocabulary from the data; this is its choice for {TYPICAL_PAIRS:,} sentence pairs"],
    )  # fmt: skip


def _advise(recipe: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what training would choose for a corpus of typical size; None where the model does not depend on it."""
    kind = find(str(recipe["task"]))
    pairs = Pairs([TYPICAL_LINE] * TYPICAL_PAIRS, [TYPICAL_LINE] * TYPICAL_PAIRS)
    settings = kind.Settings.parse(recipe.get("data") or {}, "data")
    advice = advise(kind, settings, Dataset([pairs], [], "", {}), recipe.get("train") or {})
    return advice.recipe if "model" in advice.recipe else None
