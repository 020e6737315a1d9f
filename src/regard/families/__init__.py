"""The families: one file each: a spec function, its sizes, and how others publish it. The file's name is the family's."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import UnknownName

if TYPE_CHECKING:
    from regard.families.published import Form
    from regard.model.model_spec import ModelSpec

HELPERS = {"__init__", "expand", "published", "named_sizes", "weight_map"}


def names() -> list[str]:
    """Every family there is."""
    return sorted(p.stem for p in Path(__file__).parent.glob("*.py") if p.stem not in HELPERS)


def find(name: str) -> Callable[..., ModelSpec]:
    """The spec function of a family."""
    if name not in names():
        raise UnknownName("family", name, names())
    spec: Callable[..., ModelSpec] = importlib.import_module(f"regard.families.{name}").spec
    return spec


def sizes() -> dict[str, str]:
    """Every published size by name, with its family."""
    return {size: name for name in names() for size in importlib.import_module(f"regard.families.{name}").SIZES}


def forms() -> dict[str, Form]:
    """How others publish our families, by the `model_type` of their configurations."""
    found = (importlib.import_module(f"regard.families.{name}") for name in names())
    return {form.kind: form for family in found for form in getattr(family, "FORMS", ())}


def paper(size: str) -> float | None:
    """How many parameters a published size has by its paper, where that says so."""
    figures: dict[str, float] = importlib.import_module(f"regard.families.{sizes()[size]}").PAPER
    return figures.get(size)


def __getattr__(name: str) -> Any:
    """`regard.families.gpt` without importing every family first."""
    if name in names():
        return importlib.import_module(f"regard.families.{name}")
    raise AttributeError(f"module 'regard.families' has no attribute {name!r}; there is {', '.join(names())}")
