"""Write one small JSON file per result.

It says what was run, with what, and what came out. Where it goes, the arguments say that all benches have (`bench/entry.py`).
"""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.entry import ROOT, Mode, make_scratch
from regard.machine import machine, versions

RECORDED = ROOT / "results"
"""Results that are part of the repository."""
MEASURED = ROOT / "runs" / "results"
"""Results of runs that were not asked to be recorded."""


def folder() -> Path:
    """Where results are written."""
    if Mode.smoke:
        return make_scratch("results")
    place = RECORDED if Mode.record else MEASURED
    place.mkdir(parents=True, exist_ok=True)
    return place


def write(name: str, *, title: str, figures: dict[str, Any], command: str = "", **facts: Any) -> Path:
    """Write a result; the commit, versions, processor and, unless it is given, the command that was typed are added."""
    if wrong := find_infinite(figures):
        raise SystemExit(f"{name}: {wrong} is no finite number, so nothing is recorded")
    here = machine()
    body = {
        "title": title,
        "command": command or Mode.command,
        "figures": figures,
        **facts,
        "commit": _git("rev-parse", "--short", "HEAD"),
        "versions": versions(),
        "machine": f"{here.processor}, {here.cores} cores",
    }
    path = folder() / f"{name}.json"
    path.write_text(json.dumps(body, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def find_infinite(figures: Any, name: str = "") -> str:
    """The name of the first figure that is infinite or not a number; empty if there is none."""
    if isinstance(figures, float):
        return "" if math.isfinite(figures) else name
    rows = figures.items() if isinstance(figures, Mapping) else enumerate(figures) if isinstance(figures, list) else ()
    return next((found for key, row in rows if (found := find_infinite(row, f"{name}[{key}]"))), "")


def keep_run(path: Path, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the row of a run from its file, or measure it and write the file, so that it is measured once."""
    if not path.exists():
        path.write_text(json.dumps(measure()) + "\n", encoding="utf-8")
    row: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return row


def merge_runs(name: str, made: Path, *key: str) -> list[dict[str, Any]]:
    """Rows of single runs: the recorded result's `runs` and the files of `made`, which replace rows with the same key.

    Runs of a smoke test are other than what is recorded and do not stand beside it.
    """
    rows = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(made.glob("*.json"))]
    recorded = RECORDED / f"{name}.json"
    if recorded.exists() and not (Mode.smoke and rows):
        rows = json.loads(recorded.read_text(encoding="utf-8")).get("runs", []) + rows
    merged = {tuple(row[part] for part in key): row for row in rows}
    return [merged[place] for place in sorted(merged)]


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, cwd=ROOT, check=False).stdout.strip()
