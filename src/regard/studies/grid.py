"""The grid under every study: cells that run once.

A cell is one independent piece of work with everything its result depends on, such as one recipe trained with one seed. Its
result is one small JSON file, written atomically and named by a digest of its settings and of what else it rests on
(`basis.py`: plugins, test files, versions):

    cells/NAME-DIGEST.json   the result of a finished cell; it never runs again
    work/NAME-DIGEST/        the run folder of an unfinished one; it resumes there

So a study that was killed goes on with the same command, one with more seeds runs only the new cells, and a changed setting is
another cell. Cells that were computed with other code are computed again, or taken on request, which the result says.
Cells run in child processes of one thread each, in this process, or on a Ray cluster (`ray_cells.py`).
"""

from __future__ import annotations

import dataclasses
import glob
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
from regard.machine import machine
from regard.report.number import duration
from regard.spec import Plain
from regard.studies.basis import TESTS, check_tests, describe_difference, find_basis, same_settings
from regard.studies.jobs import Outcome, find_job
from regard.studies.worker import Child, Stopped

CELLS, WORK = "cells", "work"
HERE, RAY = "here", "ray"
MAX_NAMED = 6
"""Maximum number of cells that a message names."""
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
    basis: Plain = dataclasses.field(default_factory=dict)
    """Facts on which its result rests, too; the grid fills them in."""

    @property
    def slug(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")[:40]

    @property
    def key(self) -> str:
        """The name of its file."""
        text = json.dumps([self.job, self.settings, self.basis], sort_keys=True, ensure_ascii=False)
        return f"{self.slug}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@dataclasses.dataclass(frozen=True)
class CellResult:
    """The result of a cell. Everything that depends on the clock is in `timing`."""

    cell: Cell
    result: Plain
    timing: Plain
    processor: str | None = None
    """Processor that computed it."""
    differs: Sequence[str] = ()
    """Differences between its code or test files and those of the study."""
    other_tests: bool = False
    """True if it was tested on other files, with which no other result can be compared."""

    @property
    def error(self) -> str | None:
        """Reason why the cell has no result: it was refused, or it diverged."""
        found = self.result.get("error")
        return None if found is None else str(found)


@dataclasses.dataclass(frozen=True)
class Grid:
    """Place of cells: in `processes` of one thread each, in this process if 0, or `on` a Ray cluster."""

    folder: Path
    processes: int = 0
    plugins: Sequence[str] = ()
    keep: bool = False
    """Keep the run folders of finished cells, with their models."""
    say: Say = lambda _: None
    progress: Progress = lambda *_: None
    on: str = HERE
    anyway: bool = False
    """Take finished cells although they were computed with other code or other test files."""
    _bases: dict[str, Plain] = dataclasses.field(default_factory=dict, compare=False)
    _older: dict[str, CellResult | None] = dataclasses.field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        if self.on not in (HERE, RAY):
            raise UnknownName("place to run cells on", self.on, (HERE, RAY))

    @property
    def parallel(self) -> int:
        """Number of cells that run at once."""
        if self.on == RAY:
            from regard.studies.ray_cells import count_processors

            return count_processors()
        return max(1, self.processes)

    def ground(self, cell: Cell) -> Cell:
        """The cell with what it rests on."""
        if cell.basis:
            return cell
        if cell.key not in self._bases:
            self._bases[cell.key] = find_basis(cell.settings, self.plugins)
        return dataclasses.replace(cell, basis=self._bases[cell.key])

    def path(self, cell: Cell) -> Path:
        return self.folder / CELLS / f"{self.ground(cell).key}.json"

    def read(self, cell: Cell) -> CellResult | None:
        """The result of a cell, if it is finished; one computed with other code only if `anyway`."""
        path = self.path(cell)
        if not path.exists():
            older = self.find_older(cell) if self.anyway else None
            return None if older is None or older.other_tests else older
        found = parse_json(path.read_bytes(), path)
        return CellResult(cell, found["result"], found["timing"], found.get("processor"))

    def find_older(self, cell: Cell) -> CellResult | None:
        """The newest result of a cell of these settings that was computed with other code or test files."""
        if cell.key in self._older:
            return self._older[cell.key]
        now, found = self.ground(cell).basis, None
        paths = (self.folder / CELLS).glob(f"{glob.escape(cell.slug)}-*.json")
        for path in sorted(paths, key=lambda path: path.stat().st_mtime_ns):
            old = parse_json(path.read_bytes(), path)
            if old["job"] == cell.job and same_settings(old["settings"], cell.settings):
                was = old.get("basis")
                found = CellResult(
                    cell, old["result"], old["timing"], old.get("processor"), describe_difference(was, now)
                )
                found = dataclasses.replace(found, other_tests=was is not None and was[TESTS] != now[TESTS])
        self._older[cell.key] = found
        return found

    def missing(self, cells: Sequence[Cell]) -> list[Cell]:
        """The cells that are still to run, each once."""
        return [cell for cell in {cell.key: cell for cell in cells}.values() if self.read(cell) is None]

    def tell_older(self, cells: Sequence[Cell]) -> list[str]:
        """Say which finished cells were computed with other code or test files, and what becomes of them."""
        unfinished = [cell for cell in {cell.key: cell for cell in cells}.values() if not self.path(cell).exists()]
        older = [found for cell in unfinished if (found := self.find_older(cell)) is not None]
        taken = [each for each in older if self.anyway and not each.other_tests]
        again = [each for each in older if each not in taken]
        offer = "" if any(each.other_tests for each in again) else " (--anyway takes them as they are)"
        return [
            *([f"mixed: {_describe_older(taken)}; taken as they are"] if taken else []),
            *([f"{_describe_older(again)}; computed again{offer}"] if again else []),
        ]

    def run(self, cells: Sequence[Cell]) -> list[CellResult]:
        """Run every cell that is not finished; returns the results of all, in their order."""
        for name in (CELLS, WORK):
            make_folder(DISK, self.folder / name)
        for mark in (self.folder / WORK).glob(_mark(Path("*")).name):
            key = mark.name.removeprefix(".").removesuffix(".done")
            if (self.folder / CELLS / f"{key}.json").exists():
                _remove(mark.with_name(key))
        for line in self.tell_older(cells):
            self.say(line)
        left = [self.ground(cell) for cell in self.missing(cells)]
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
                "cell": dataclasses.asdict(cell), "plugins": list(self.plugins),
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
    check_tests(cell.settings, cell.basis)
    try:
        outcome = find_job(cell.job)(cell.settings, work)
    except (SpecError, Diverged) as error:
        outcome = Outcome({"error": str(error), "kind": type(error).__name__}, {})
    check_tests(cell.settings, cell.basis)  # they were read after training
    body = dataclasses.asdict(cell) | {"processor": machine().processor} | dataclasses.asdict(outcome)
    return json.dumps(body, ensure_ascii=False)


def run_cell(cell: Cell, out: Path, work: Path, *, keep: bool = False) -> None:
    """Run one cell to its end and write its result. Unless it is kept, the work goes then, also if that is interrupted."""
    found = compute_cell(cell, work)
    if not keep and work.exists():
        write_file(_mark(work), "")
    write_file(out, found)
    if not keep:
        _remove(work)


def _mark(work: Path) -> Path:
    """The file that says that a work folder goes once the result of its cell is written."""
    return work.with_name(f".{work.name}.done")


def _remove(work: Path) -> None:
    if work.exists():
        shutil.rmtree(work)
    _mark(work).unlink(missing_ok=True)


def tell_mixture(found: Sequence[CellResult]) -> list[str]:
    """Say which of these results were computed with other code than the study has now, or on several processors."""
    older = [each for each in found if each.differs]
    out = [f"mixed: of {len(found)} cells used here, {_describe_older(older)}"] if older else []
    if len(processors := sorted({each.processor for each in found if each.processor})) > 1:
        out.append(
            f"computed on {len(processors)} kinds of processors, whose rounding differs: {', '.join(processors)}"
        )
    return out


def _describe_older(older: Sequence[CellResult]) -> str:
    """Name finished cells that were computed with something else, and what that is."""
    names = ", ".join(each.cell.name for each in older[:MAX_NAMED])
    more = f" and {len(older) - MAX_NAMED} more" if len(older) > MAX_NAMED else ""
    were = "cell was" if len(older) == 1 else "cells were"
    why = "; ".join(dict.fromkeys(line for each in older for line in each.differs))
    return f"{len(older)} finished {were} computed with something else ({why}): {names}{more}"


class Board:
    """Display of running cells."""

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
    """Return the share of a training run that is done, by the last lines of its log."""
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
