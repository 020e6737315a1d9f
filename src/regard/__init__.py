"""Regard: train, run, explain and fairly compare sequence models on the machine you have."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from regard import families
    from regard.api import Model, load, train

__all__ = ["Model", "__version__", "families", "load", "train"]


def __getattr__(name: str) -> Any:
    """`regard.load` and friends arrive when first asked for: importing `regard` alone costs nothing."""
    if name == "families":
        return importlib.import_module("regard.families")
    if name in ("Model", "load", "train"):
        importlib.import_module("regard.machine").wait_politely()
        return getattr(importlib.import_module("regard.api"), name)
    raise AttributeError(f"module 'regard' has no attribute {name!r}")
