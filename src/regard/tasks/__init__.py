"""Tasks: data, loss and scores. The file's name is the task's.

A recipe says `task: translate`, and this finds `tasks/translate.py`. What tasks share is in `tasks/common`.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from regard.errors import UnknownName
from regard.tasks.common.task import TASKS, Task


def names() -> list[str]:
    """Every task: the files in this folder, and those that plugins add."""
    here = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "__init__")
    return [*here, *(name for name in TASKS if name not in here)]


def find(name: str) -> type[Task]:
    """The class of the task with this name."""
    if name not in names():
        raise UnknownName("task", name, names())
    if name not in TASKS:
        importlib.import_module(f"regard.tasks.{name}")
    return TASKS[name]
