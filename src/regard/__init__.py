"""Train, run, explain and compare sequence models.

    import regard

    model = regard.load("runs/dates")
    model.run("15. November 2026")

Everything is loaded on first use: `import regard` alone costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from regard import families
    from regard.api import Model, load, train
    from regard.api.doctor import doctor
    from regard.api.evaluation import evaluate
    from regard.api.look import look
    from regard.api.look_at_data import look_at_data
    from regard.api.model_summary import show
    from regard.conversion.convert import convert
    from regard.errors import CallStopped
    from regard.stopping import Stop
    from regard.studies.run_study import study

__all__ = [
    "CallStopped",
    "Model",
    "Stop",
    "__version__",
    "convert",
    "doctor",
    "evaluate",
    "families",
    "load",
    "look",
    "look_at_data",
    "show",
    "study",
    "train",
]

_HOMES = {
    "Model": "regard.api",
    "Stop": "regard.stopping",
    "CallStopped": "regard.errors",
    "load": "regard.api",
    "train": "regard.api",
    "evaluate": "regard.api.evaluation",
    "look": "regard.api.look",
    "look_at_data": "regard.api.look_at_data",
    "show": "regard.api.model_summary",
    "convert": "regard.conversion.convert",
    "study": "regard.studies.run_study",
    "doctor": "regard.api.doctor",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name == "families":
        return importlib.import_module("regard.families")
    if name in _HOMES:
        importlib.import_module("regard.machine").wait_politely()
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'regard' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names: what a prompt offers."""
    return list(__all__)
