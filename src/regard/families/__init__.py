"""Model families: one file each, found by its name.

A family has a spec function, published sizes, and a description of how others publish it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from regard.errors import UnknownName

if TYPE_CHECKING:
    from regard.families.published import Form
    from regard.model.model_spec import ModelSpec

HELPERS = {"__init__", "expand", "published", "named_sizes", "weight_map"}


def names() -> list[str]:
    """List all families."""
    return sorted(p.stem for p in Path(__file__).parent.glob("*.py") if p.stem not in HELPERS)


def find(name: str) -> Callable[..., ModelSpec]:
    """Return the spec function of a family."""
    if name not in names():
        raise UnknownName("family", name, names())
    spec: Callable[..., ModelSpec] = importlib.import_module(f"regard.families.{name}").spec
    return spec


def sizes() -> dict[str, str]:
    """Map every published size to its family."""
    return {size: name for name in names() for size in importlib.import_module(f"regard.families.{name}").SIZES}


def forms() -> dict[str, Form]:
    """Map the `model_type` of other people's configurations to how they publish our families."""
    found = (importlib.import_module(f"regard.families.{name}") for name in names())
    return {form.kind: form for family in found for form in getattr(family, "FORMS", ())}


def paper(size: str) -> float | None:
    """Return the number of parameters that the paper gives for a size, if it gives one."""
    figures: dict[str, float] = importlib.import_module(f"regard.families.{sizes()[size]}").PAPER
    return figures.get(size)


def __getattr__(name: str) -> ModuleType:
    """Import a family on first use: `regard.families.gpt`."""
    if name in names():
        return importlib.import_module(f"regard.families.{name}")
    raise AttributeError(f"module 'regard.families' has no attribute {name!r}; there is {', '.join(names())}")
