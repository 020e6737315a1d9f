"""What `regard show` is asked about: a size, a recipe or a model folder, as a module to look at."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from regard import families
from regard.errors import SpecError, UnknownName
from regard.families.expand import expand_model, model_keys
from regard.model.net import Net
from regard.recipes.merge import list_recipes, merge, nest, read_recipe
from regard.serialization.load import load_model
from regard.serialization.model_folder import find_model


def net_of(what: str, changes: Mapping[str, Any] | None = None) -> tuple[Net, list[str]]:
    """The module of a size, recipe or model folder, and what a reader should know about its numbers."""
    model, said = _model_of(what)
    for path, value in (changes or {}).items():
        if not path.startswith("model."):
            near = f"; did you mean 'model.{path}'?" if path.split(".")[0] in model_keys(model) else ""
            raise SpecError(f"show looks at the model only: --set takes model.… here, got {path!r}{near}")
        model = merge({"model": model}, nest(path, value))["model"]
    with torch.device("meta"):  # shapes are all we look at: the largest model takes no memory
        return expand_model(model, {}).build(), said


def paper_of(what: str) -> str:
    """What the paper says of a published size, where it says something."""
    figure = families.paper(what) if what in families.sizes() else None
    if figure is None:
        return ""
    return f"; the paper says {figure / 1e6:.4g} M" if figure < 1e9 else f"; the paper says {figure / 1e9:.4g} G"


def _model_of(what: str) -> tuple[Mapping[str, Any], list[str]]:
    """The model part of a recipe for what was named."""
    if Path(what).is_dir():
        return {"spec": load_model(find_model(what))[0].spec.plain()}, []
    sizes = families.sizes()
    if what in sizes:
        return {"family": sizes[what], "size": what}, []
    if what not in list_recipes() and Path(what).suffix not in (".yaml", ".yml"):
        raise UnknownName("size, recipe or model folder", what, [*sizes, *list_recipes()])
    recipe = read_recipe(what)
    model = recipe.get("model") or {}
    if not isinstance(model, Mapping):
        raise SpecError(
            f"model in {what} should be a mapping such as {{family: transformer, width: 128}}, got {model!r}"
        )
    open_ones = "the model's size and vocabulary are" if recipe.get("auto") else "the vocabulary is"
    return model, [f"{open_ones} chosen from the data; this is the family's default until then"]
