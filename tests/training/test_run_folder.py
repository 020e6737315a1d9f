"""Killed at any moment of starting over, a folder holds the old run when it is next looked at, or the new one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from regard.files.storage import Disk
from regard.training.run import run_folder
from regard.training.run.run_folder import move_aside, replace_run

NAMES = ("best", "log", "tokens", "facts")
OLD = {"best/weights": "old", "log": "old", "facts": "old", "mine": "mine"}
NEW = {"best/weights": "new", "tokens/t": "new", "facts": "new", "mine": "mine"}


class Killed(BaseException):
    """The process ends here."""


class Dying(Disk):
    """A disk on which a process renames so many times."""

    def __init__(self, left: int) -> None:
        self.left = left

    def rename(self, old: Path, new: Path) -> None:
        if self.left == 0:
            raise Killed
        self.left -= 1
        super().rename(old, new)


def fill(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def held(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


def start_over(folder: Path, *, fail: bool = False) -> None:
    with replace_run(folder, NAMES):
        move_aside(folder, NAMES)
        fill(folder, NEW)
        if fail:
            raise ValueError


def deaths(folder: Path, monkeypatch: pytest.MonkeyPatch, *, fail: bool) -> Iterator[Path]:
    """The folder after a process was killed at each of its renames, and after one that was not."""
    for count in range(100):
        place, killed = folder / str(count), True
        fill(place, OLD)
        with monkeypatch.context() as patch, suppress(Killed):
            patch.setattr(run_folder, "DISK", Dying(count))
            with suppress(ValueError):
                start_over(place, fail=fail)
            killed = False
        yield place
        if not killed:
            return


@pytest.mark.parametrize("fail", [False, True], ids=["begins", "cannot begin"])
def test_killed_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail: bool) -> None:
    seen = []
    for place in deaths(tmp_path, monkeypatch, fail=fail):
        with replace_run(place, NAMES):
            pass
        assert held(place) in (OLD, NEW)
        assert not (place / run_folder.BEFORE).exists() and not (place / run_folder.GONE).exists()
        seen.append(held(place) == NEW)
    assert seen == [*[False] * (len(seen) - 1), not fail]
    assert len(seen) == (7 if fail else 5)


def test_killed_when_the_old_run_goes(tmp_path: Path) -> None:
    fill(tmp_path, NEW)
    fill(tmp_path / run_folder.GONE, {"best/weights": "old"})
    with replace_run(tmp_path, NAMES):
        assert held(tmp_path) == NEW
