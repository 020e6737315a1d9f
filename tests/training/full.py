"""Train on a file system that is really full: `python -m tests.training.full`.

A small file system in memory is mounted in a process of its own, so that it is gone when the process ends. Either it has
room for less than a run needs, page by page, or somebody fills it at a chosen moment. The run must say what it lacks, keep
whole what it had saved, and, given room again, end as if there had been room all along.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.errors import DiskFull
from regard.training import train
from regard.training.prepare import TrainerBuilder
from regard.training.request import TrainRequest
from regard.training.run.artifacts import Artifacts
from regard.training.run.checkpoint import Checkpoints
from regard.training.run.lock import RunLock
from regard.training.run.log import Log
from regard.training.step.weight_averaging import Snapshots
from regard.training.train import run_training
from regard.training.trainer import Trainer
from tests.training.small import hard, traces

PAGE, ROOM = 4096, 4 << 20
WAYS = (["unshare", "--map-root-user", "--mount"], ["unshare", "--mount"])
"""How to mount what nobody else sees: as any user where that is allowed, else as root."""
MOMENTS: dict[str, tuple[Any, str]] = {
    "lock the run": (RunLock, "__enter__"),
    "write run.json": (train, "open_run"),
    "write vocabulary": (TrainerBuilder, "prepare_task"),
    "write the log": (Log, "write"),
    "write best": (Artifacts, "write_best"),
    "write step-00000004": (Snapshots, "add"),
    "write step-00000003": (Trainer, "save"),
    "write final": (Artifacts, "write_final"),
    "write report.html": (Artifacts, "write_report"),
}
"""What finds no room if the disk fills up just before this is called."""


def mounting() -> list[str] | None:
    """The beginning of a command that may mount; None if there is no way here."""
    for way in WAYS:
        if shutil.which(way[0]):
            tried = subprocess.run([*way, "mount", "-t", "tmpfs", "tmpfs", tempfile.gettempdir()], capture_output=True)
            if tried.returncode == 0:
                return list(way)
    return None


class Small:
    """A file system of a size one can choose."""

    def __init__(self, place: Path) -> None:
        self.place, self.filler = place, place / "filler"
        place.mkdir()
        self._mount(f"size={ROOM}")

    def resize(self, size: int) -> None:
        self._mount(f"remount,size={size}")

    def _mount(self, options: str) -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.place)], check=True)

    @contextmanager
    def filled_before(self, owner: Any, name: str) -> Iterator[None]:
        """Whoever calls this finds the disk full."""
        real = getattr(owner, name)

        def call(*given: Any, **named: Any) -> Any:
            self.fill()
            return real(*given, **named)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, call)
            yield

    def fill(self) -> None:
        with self.filler.open("ab", buffering=0) as file:
            while (free := shutil.disk_usage(self.place).free) > 0:
                file.write(bytes(free))


def fill_often(place: Path, every: int) -> str:
    """Fill the disk at every moment above, and make it too small by every so many pages; what there is to say."""
    disk = Small(place / "disk")
    try:
        request = hard(disk.place / "run", train__save_every=3)
        run_training(request)
        whole, pages = traces(request.folder), shutil.disk_usage(disk.place).used // PAGE
        for doing, (owner, name) in MOMENTS.items():
            shutil.rmtree(request.folder)
            with disk.filled_before(owner, name):
                said = _refused(request)
            assert said is not None and said.startswith(f"not enough disk space to {doing} in "), (doing, said)
            disk.filler.unlink()
            _ends_as(request, whole)
        told: Counter[str] = Counter()
        for size in range(1, pages + 1, every):
            shutil.rmtree(request.folder)
            disk.resize(size * PAGE)
            said = _refused(request)
            told[(said or "room enough").split(" in ")[0].rstrip("0123456789")] += 1
            disk.resize(ROOM)
            _ends_as(request, whole)
        return f"{len(MOMENTS)} moments and {told.total()} sizes of up to {pages} pages, nothing lost: {dict(told)}"
    finally:
        subprocess.run(["umount", str(disk.place)], check=True)


def _refused(request: TrainRequest) -> str | None:
    """What a run says to a full disk, after a look at what it had saved; None if there was room."""
    try:
        run_training(request)
    except DiskFull as error:
        said = str(error)
        assert error.exit_code == 5
        assert re.search(r": [\d.]+ (bytes|kB) needed, [\d.]+ (bytes|kB) free; ", said), said
        assert said.endswith("make space and run the same command again; everything saved before is intact")
        checkpoints = Checkpoints(request.folder / "checkpoints")
        if steps := checkpoints.steps():
            loaded = checkpoints.load_newest()
            assert loaded is not None and loaded.step == steps[0], said
        return said
    return None


def _ends_as(request: TrainRequest, whole: dict[str, Any]) -> None:
    run_training(request)
    assert traces(request.folder) == whole
    assert not list(request.folder.rglob(".*")), "something half written is left"


if __name__ == "__main__":
    torch.set_num_threads(1)
    if "--inside" in sys.argv:
        with tempfile.TemporaryDirectory() as folder:
            print(fill_often(Path(folder), int(sys.argv[1])))
    else:
        way = mounting() or sys.exit("nobody may mount a file system here")
        words = [sys.executable, "-m", "tests.training.full", sys.argv[1] if len(sys.argv) > 1 else "1", "--inside"]
        sys.exit(subprocess.run([*way, *words]).returncode)
