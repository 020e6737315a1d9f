"""Further measurements of a trained model on test data."""

from __future__ import annotations

from collections.abc import Callable

from regard.errors import UnknownName
from regard.model.net import Net
from regard.spec import Plain
from regard.tasks.common.task import Task

Probe = Callable[[Net, Task, object], Plain]
"""Called with a model, its task and test data as the task reads it; the result is plain data."""
PROBES: dict[str, Probe] = {}


def run_probe(name: str, net: Net, task: Task, raw: object) -> Plain:
    """Measure by name."""
    if name not in PROBES:
        raise UnknownName("measurement", name, PROBES)
    return PROBES[name](net, task, raw)
