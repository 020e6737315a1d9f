"""Cells on a Ray cluster; `python -m tests.studies.ray_nodes` runs a study on two nodes and kills one."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from regard.errors import SpecError, UnknownName
from regard.studies import ray_cells
from regard.studies.grid import Cell, Grid


def test_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownName, match="no place to run cells on 'rya'; did you mean 'ray'"):
        Grid(tmp_path, on="rya")
    with pytest.raises(SpecError, match="run folders stay on the nodes of a Ray cluster and cannot be kept"):
        Grid(tmp_path, on="ray", keep=True).run([Cell("one", "train", {})])
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SpecError, match=r"running cells on Ray needs an extra: .*pip install '\.\[ray\]'"):
        Grid(tmp_path, on="ray").run([Cell("one", "train", {})])


def test_a_node_computes_what_this_process_computes(tmp_path: Path) -> None:
    """The function that runs on a node, called here: the file of a cell, and a refusal of another version."""
    cell = {
        "name": "RNN",
        "job": "gradients",
        "settings": {"layers": "RNN", "n": 8, "width": 8, "seed": 1},
    }
    place = {"version": ray_cells.regard.__version__, "folder": str(tmp_path), "plugins": []}
    grid = Grid(tmp_path)
    cell = dataclasses.asdict(grid.ground(Cell(**cell)))  # type: ignore[arg-type]
    there = ray_cells._compute(cell, place)
    grid.run([Cell(**cell)])  # type: ignore[arg-type]
    assert grid.path(Cell(**cell)).read_text() == there  # type: ignore[arg-type]
    with pytest.raises(SpecError, match=r"this node has Regard .*, and the study runs with 0\.0"):
        ray_cells._compute(cell, place | {"version": "0.0"})
