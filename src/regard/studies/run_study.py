"""Run a study by name and write its results to a folder."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from regard.errors import UnknownName, name_extra
from regard.files.storage import write_file
from regard.machine import machine
from regard.studies.grid import HERE, Grid, Progress, Say
from regard.studies.study_options import OPTIONS, StudyOptions
from regard.studies.study_report import StudyResult
from regard.training.run.lock import RunLock

STUDIES = {
    "complexity": "complexity",
    "compare": "compare",
    "ablate": "ablate",
    "length": "length_generalization",
    "calibration": "calibration_study",
    "gradients": "gradient_flow",
    "transfer": "transfer",
    "scaling": "scaling",
    "rates": "learning_rates",
    "properties": "layer_properties",
}
"""The module of each study; its function `run` is the study."""
PLOTS = f"no figures as files: matplotlib is not installed; {name_extra('plots')} brings it (report.html has them all)"


def study(
    name: str = "complexity",
    *recipes: str,
    out: str | Path | None = None,
    processes: int | None = None,
    plugins: Sequence[str] = (),
    keep: bool = False,
    on: str = HERE,
    anyway: bool = False,
    notify: Say | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> StudyResult:
    """Run a study on this machine and fill the folder `out` (runs/NAME): NAME.json, report.html and figures.

    The same call again continues a study that was interrupted; what is finished never runs again.

    recipes    what is compared, for studies that train models
    processes  how many cells run at once, with one thread each; 0: in this process; by default one per core
    keep       keep the run folders of finished cells, with their models
    on         where cells run: here, or on a Ray cluster (`ray`)
    anyway     take finished cells although plugins, test files or versions changed since; the result names them as mixed
    notify     called with progress messages
    settings   those of the study: data, valid, test, set, seeds, minutes, device, and see `regard study NAME --help`
    """
    run = find_study(name)
    folder, tell = Path(out or f"runs/{name}"), notify or (lambda _: None)
    count = machine().cores if processes is None else processes
    grid = Grid(folder, count, tuple(plugins), keep, tell, progress or (lambda *_: None), on, anyway)
    common = StudyOptions(**{key: value for key, value in settings.items() if key in OPTIONS})
    own = {key: value for key, value in settings.items() if key not in OPTIONS}
    with RunLock(folder):
        found = run(grid, recipes, common, **own)
        write_file(folder / f"{name}.json", json.dumps(found.plain(), indent=2, ensure_ascii=False) + "\n")
        write_file(folder / "report.html", found.page())
        drawn = found.draw(folder)
    if not drawn:
        tell(PLOTS)
    tell(f"wrote {', '.join([f'{name}.json', 'report.html', *(path.name for path in drawn)])} to {folder}")
    return found


def find_study(name: str) -> Callable[..., StudyResult]:
    """The study of this name."""
    if name not in STUDIES:
        raise UnknownName("study", name, STUDIES)
    run: Callable[..., StudyResult] = importlib.import_module(f"regard.studies.{STUDIES[name]}").run
    return run
