"""Cells on a Ray cluster.

Ray finds the cluster (`RAY_ADDRESS`, or one that runs on this machine, or it starts one), places one cell per processor, and
runs a cell again elsewhere if its node is lost. A cell works in a folder of its own node and sends its result here, where it is
written. Every node needs Regard and the data files under the same paths.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import regard
from regard.errors import RegardError, SpecError, name_extra
from regard.files.storage import write_file
from regard.spec import Plain

if TYPE_CHECKING:
    from regard.studies.grid import Board, Cell, Grid

RETRIES = 3
"""Number of times a cell is run again because its node or process was lost."""


def connect() -> Any:
    """The module `ray`, connected to a cluster."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise SpecError(f"running cells on Ray needs an extra: {name_extra('ray')}") from None
    if not ray.is_initialized():
        ray.init(log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
    return ray


def count_processors() -> int:
    """The processors of the whole cluster."""
    return max(1, int(connect().cluster_resources().get("CPU", 1)))


def run_on_ray(grid: Grid, cells: Sequence[Cell], board: Board) -> None:
    """Run cells on the cluster and write their results as they come."""
    from regard.studies.grid import POLL

    if grid.keep:
        raise SpecError(
            "run folders stay on the nodes of a Ray cluster and cannot be kept; leave out --keep or --on ray"
        )
    ray = connect()
    task = ray.remote(num_cpus=1, max_retries=RETRIES)(_compute)
    place: Plain = {"version": regard.__version__, "folder": str(Path.cwd()), "plugins": list(grid.plugins)}
    waiting = {task.remote(dataclasses.asdict(cell), place): cell for cell in cells}
    for cell in cells:
        board.started(cell)
    try:
        while waiting:
            ready, _ = ray.wait(list(waiting), num_returns=1, timeout=POLL)
            for each in ready:
                cell = waiting.pop(each)
                try:
                    write_file(grid.path(cell), ray.get(each))
                except ray.exceptions.RayError as error:
                    raise RegardError(
                        f"the cell {cell.name!r} failed: {_explain(error)}; the same command continues the study"
                    ) from None
                board.finished(cell)
            board.show()
    finally:
        for each in waiting:
            ray.cancel(each, force=True)


def _compute(cell: Plain, place: Plain) -> str:
    """Runs on a node: one cell, with one thread, in a folder that is removed afterwards."""
    import torch

    from regard.registry import load_plugins
    from regard.studies.basis import check_plugins
    from regard.studies.grid import Cell, compute_cell

    if regard.__version__ != place["version"]:
        raise SpecError(f"this node has Regard {regard.__version__}, and the study runs with {place['version']}")
    if Path(place["folder"]).is_dir():
        os.chdir(place["folder"])  # relative paths mean the same as where the study was started
    torch.set_num_threads(1)
    load_plugins([Path(name) for name in place["plugins"] if name not in _LOADED])
    _LOADED.update(place["plugins"])
    check_plugins(place["plugins"], cell["basis"])
    with tempfile.TemporaryDirectory() as work:
        return compute_cell(Cell(**cell), Path(work) / "run")


_LOADED: set[str] = set()
"""Plugins that this process has loaded."""


def _explain(error: Exception) -> str:
    """Tell what a cell died of, in one line."""
    cause = getattr(error, "cause", None) or error
    lines = str(cause).strip().splitlines() or [""]
    return f"{type(cause).__name__}: {lines[0]}"
