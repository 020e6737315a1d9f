"""Jobs of cells of a study, by name."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from pathlib import Path

from regard.errors import UnknownName
from regard.spec import Plain

HOMES = {
    "train": "regard.studies.train_cell",
    "gradients": "regard.studies.gradient_flow",
    "copy_memory": "regard.studies.copy_memory",
    "properties": "regard.studies.layer_properties",
}
"""The module of each job; its function `run_job` is the job."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Result of a job. `result` is deterministic; `timing` is not."""

    result: Plain
    timing: Plain


Job = Callable[[Plain, Path], Outcome]
"""Called with the settings of a cell and a folder to work in, where an interrupted job finds what it left."""


def find_job(name: str) -> Job:
    """The job of this name."""
    if name not in HOMES:
        raise UnknownName("job", name, HOMES)
    job: Job = importlib.import_module(HOMES[name]).run_job
    return job
