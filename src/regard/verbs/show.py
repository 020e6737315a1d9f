"""What `regard show` is asked about: a size, a recipe or a model folder, as a module to look at."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from regard import families
from regard.errors import UnknownName
from regard.model.model import Net
from regard.training.export import restore
from regard.training.recipe import expand_model, merged, read_recipe, set_path, shipped
from regard.training.run import model_folder


def net_of(what: str, changes: Mapping[str, Any]) -> Net:
    """The module of a size, recipe or model folder; a recipe's vocabulary is the family's default until data decides it."""
    if Path(what).is_dir():
        return restore(model_folder(what))[0]
    sizes = families.sizes()
    if what in sizes:
        model: Mapping[str, Any] = {"family": sizes[what], "size": what}
    elif what in shipped() or Path(what).suffix in (".yaml", ".yml"):
        model = read_recipe(what).get("model", {})
    else:
        raise UnknownName("size, recipe or model folder", what, [*sizes, *shipped()])
    for path, value in changes.items():
        model = merged({"model": model}, set_path(path, value))["model"]
    with torch.random.fork_rng(devices=[]):
        return expand_model(model, {}).build()
