"""The families: one file each, a spec function and its sizes. The file's name is the family's."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import UnknownName

if TYPE_CHECKING:
    from regard.model.spec import ModelSpec

HELPERS = {"__init__", "size"}


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


def __getattr__(name: str) -> Any:
    """`regard.families.gpt` without importing every family first."""
    if name in names():
        return importlib.import_module(f"regard.families.{name}")
    raise AttributeError(f"module 'regard.families' has no attribute {name!r}; there is {', '.join(names())}")
