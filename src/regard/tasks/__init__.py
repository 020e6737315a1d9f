"""Tasks: examples → batch → loss → scores. The folder is the table: a recipe says `task: translate`, this file finds it."""

from __future__ import annotations

import importlib
from pathlib import Path

from regard.errors import UnknownName
from regard.tasks.task import TASKS, Task

HELPERS = {
    "__init__",
    "task",
    "metrics",
    "advice",
    "likelihood",
    "classes",
    "counts",
    "reading",
    "labelled",
    "texts",
    "fill",
    "pairs",
}


def names() -> list[str]:
    """Every task there is, plugged-in ones included."""
    here = sorted(p.stem for p in Path(__file__).parent.glob("*.py") if p.stem not in HELPERS)
    return [*here, *(name for name in TASKS if name not in here)]


def find(name: str) -> type[Task]:
    """The class that does the task of this name."""
    if name not in names():
        raise UnknownName("task", name, names())
    if name not in TASKS:
        importlib.import_module(f"regard.tasks.{name}")
    return TASKS[name]
