"""Tasks: examples → batch → loss → scores. A recipe says `task: translate`, this file finds it."""

from __future__ import annotations

import importlib

from regard.errors import UnknownName
from regard.tasks.common.task import TASKS, Task

HERE = ("classify", "embed", "image", "lm", "mlm", "pronounce", "span", "tag", "translate")
"""Files that are a task; the others here are what tasks share."""


def names() -> list[str]:
    """Every task there is, plugged-in ones included."""
    return [*HERE, *(name for name in TASKS if name not in HERE)]


def find(name: str) -> type[Task]:
    """The class that does the task of this name."""
    if name not in names():
        raise UnknownName("task", name, names())
    if name not in TASKS:
        importlib.import_module(f"regard.tasks.{name}")
    return TASKS[name]
