"""The grid under every study: cells that run once.

A cell is one independent piece of work with everything its result depends on, such as one recipe trained with one seed. Its
result is one small JSON file, written atomically and named by a digest of its settings:

    cells/NAME-DIGEST.json   the result of a finished cell; it never runs again
    work/NAME-DIGEST/        the run folder of an unfinished one; it resumes there

So a study that was killed goes on with the same command, one with more seeds runs only the new cells, and a changed setting is
another cell. Cells run in child processes of one thread each, in this process, or on a Ray cluster (`ray_cells.py`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import queue
import re
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from regard.errors import Diverged, RegardError, SpecError, UnknownName
from regard.files.folder import parse_json
from regard.files.storage import DISK, make_folder, write_file
from regard.report.number import duration
from regard.spec import Plain
from regard.studies.jobs import Outcome, find_job
from regard.studies.worker import Child, Stopped

CELLS, WORK = "cells", "work"
HERE, RAY = "here", "ray"
POLL = 0.2
"""Seconds between two looks at the running cells."""

Say = Callable[[str], None]
Progress = Callable[[str, int, int], None]
"""Called with what is being done, how many steps are done, and of how many."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One piece of work: its name for people, the job that does it, and the settings it depends on."""

    name: str
    job: str
    settings: Plain

    @property
    def key(self) -> str:
        """The name of its file."""
        text = json.dumps([self.job, self.settings], sort_keys=True, ensure_ascii=False)
        slug = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")[:40]
        return f"{slug}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@dataclasses.dataclass(frozen=True)
class CellResult:
    """The result of a cell. Everything that depends on the clock is in `timing`."""

    cell: Cell
    result: Plain
    timing: Plain

    @property
    def error(self) -> str | None:
        """Why the cell has no result: it was refused, or it diverged."""
        found = self.result.get("error")
        return None if found is None else str(found)


@dataclasses.dataclass(frozen=True)
class Grid:
    """Where cells run and how: in `processes` of one thread each, in this process if 0, or `on` a Ray cluster."""

    folder: Path
    processes: int = 0
    plugins: Sequence[str] = ()
    keep: bool = False
    """Keep the run folders of finished cells, with their models."""
    say: Say = lambda _: None
    progress: Progress = lambda *_: None
    on: str = HERE

    def __post_init__(self) -> None:
        if self.on not in (HERE, RAY):
            raise UnknownName("place to run cells on", self.on, (HERE, RAY))

    @property
    def parallel(self) -> int:
        """How many cells run at once."""
        if self.on == RAY:
            from regard.studies.ray_cells import count_processors

            return count_processors()
        return max(1, self.processes)

    def path(self, cell: Cell) -> Path:
        return self.folder / CELLS / f"{cell.key}.json"

    def read(self, cell: Cell) -> CellResult | None:
        """The result of a cell, if it is finished."""
        path = self.path(cell)
        if not path.exists():
            return None
        found = parse_json(path.read_bytes(), path)
        return CellResult(cell, found["result"], found["timing"])

    def missing(self, cells: Sequence[Cell]) -> list[Cell]:
        """The cells that are still to run, each once."""
        return [cell for cell in {cell.key: cell for cell in cells}.values() if not self.path(cell).exists()]

    def run(self, cells: Sequence[Cell]) -> list[CellResult]:
        """Run every cell that is not finished; returns the results of all, in their order."""
        for name in (CELLS, WORK):
            make_folder(DISK, self.folder / name)
        left = self.missing(cells)
        board = Board(self, len({cell.key for cell in cells}), len(left))
        if left and self.on == RAY:
            from regard.studies.ray_cells import run_on_ray

            run_on_ray(self, left, board)
        elif left and self.processes:
            self._run_apart(left, board)
        else:
            self._run_here(left, board)
        found = [self.read(cell) for cell in cells]
        assert all(found)
        return [each for each in found if each is not None]

    def _run_here(self, cells: Sequence[Cell], board: Board) -> None:
        for cell in cells:
            board.started(cell)
            run_cell(cell, self.path(cell), self.folder / WORK / cell.key, keep=self.keep)
            board.finished(cell)

    def _run_apart(self, cells: Sequence[Cell], board: Board) -> None:
        """Run cells in child processes, each of which takes the next one when it is done."""
        waiting: queue.SimpleQueue[Cell] = queue.SimpleQueue()
        for cell in cells:
            waiting.put(cell)
        failures: list[str] = []
        children = [Child("regard.studies.grid_worker", 0) for _ in range(min(self.processes, len(cells)))]
        threads = [
            threading.Thread(target=self._serve, args=(child, waiting, board, failures), daemon=True)
            for child in children
        ]
        try:
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                time.sleep(POLL)
                board.show()
        finally:
            for child in children:
                child.__exit__()
        if failures:
            raise RegardError(f"{failures[0]}; the same command continues the study")

    def _serve(self, child: Child, waiting: queue.SimpleQueue[Cell], board: Board, failures: list[str]) -> None:
        while not failures:
            try:
                cell = waiting.get_nowait()
            except queue.Empty:
                return
            board.started(cell)
            question = {
                "name": cell.name, "job": cell.job, "settings": cell.settings, "plugins": list(self.plugins),
                "out": str(self.path(cell)), "work": str(self.folder / WORK / cell.key), "keep": self.keep,
            }  # fmt: skip
            try:
                answer = child.ask(question, math.inf)
            except Stopped as stopped:
                failures.append(f"the cell {cell.name!r} stopped: {stopped}")
                return
            if answer.get("failed"):
                failures.append(f"the cell {cell.name!r} failed: {answer['failed']}")
                return
            board.finished(cell)


def compute_cell(cell: Cell, work: Path) -> str:
    """Run one cell to its end; returns its file. A refusal or a divergence is a result, too."""
    try:
        outcome = find_job(cell.job)(cell.settings, work)
    except (SpecError, Diverged) as error:
        outcome = Outcome({"error": str(error), "kind": type(error).__name__}, {})
    body = {"name": cell.name, "job": cell.job, "settings": cell.settings} | dataclasses.asdict(outcome)
    return json.dumps(body, ensure_ascii=False)


def run_cell(cell: Cell, out: Path, work: Path, *, keep: bool = False) -> None:
    """Run one cell to its end and write its result."""
    write_file(out, compute_cell(cell, work))
    if not keep and work.exists():
        shutil.rmtree(work)


class Board:
    """What is shown while cells run."""

    def __init__(self, grid: Grid, total: int, left: int) -> None:
        self.grid, self.total, self.done, self.left = grid, total, total - left, left
        self.running: dict[str, Cell] = {}
        self._lock = threading.Lock()
        if self.done and left:
            grid.say(f"{self.done} of {total} cells are finished already")

    def started(self, cell: Cell) -> None:
        with self._lock:
            self.running[cell.key] = cell
        self.show()

    def finished(self, cell: Cell) -> None:
        with self._lock:
            del self.running[cell.key]
            self.done += 1
            found = self.grid.read(cell)
            assert found is not None
            seconds = found.timing.get("seconds")
            took = "" if seconds is None else f", {duration(float(seconds))}"
            score = found.result.get("summary")
            said = found.error or ("" if score is None else str(score))
            self.grid.say(f"cell {self.done} of {self.total}: {cell.name}{took}{': ' if said else ''}{said}")
        self.show()

    def show(self) -> None:
        """Percent of what was left at the start: finished cells, and the steps of those that run."""
        with self._lock:
            running = list(self.running)
        shares = [_share_done(self.grid.folder / WORK / key) for key in running]
        done = self.done + sum(shares) - (self.total - self.left)
        what = f"percent of {self.left} cells" if self.left > 1 else "percent of a cell"
        self.grid.progress(what, round(100 * done / max(self.left, 1)), 100)


def _share_done(work: Path) -> float:
    """How much of a training run is done, by the last line of its log."""
    try:
        lines = (work / "log.jsonl").read_text(encoding="utf-8", errors="replace").splitlines()
        total = next(event["total"] for line in lines[:3] if (event := _event(line)).get("total"))
        return min(1.0, max(_event(line).get("step", 0) for line in lines[-2:]) / total)
    except (OSError, StopIteration, ValueError):
        return 0.0


def _event(line: str) -> Mapping[str, int]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
