"""Starting over: the old run lies aside until the new one can begin, and comes back if it cannot.

    .before        what the old run left, its facts last: once they are there, whatever is outside is of the new one
    .before.gone   the same when the new one could begin; it is removed

Killed in between, the next command finds `.before` and puts it back.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from regard.files.storage import DISK, explained

BEFORE, GONE = ".before", ".before.gone"


@contextmanager
def replacing(folder: Path, names: Sequence[str]) -> Iterator[None]:
    """What is set aside within is given up at the end, or put back if it comes to no good end."""
    with explained("start over", folder):
        _remove(folder / GONE)
        _put_back(folder, names)
    try:
        yield
    except BaseException:
        with explained("put the old run back", folder):
            _put_back(folder, names)
        raise
    with explained("start over", folder):
        if (folder / BEFORE).exists():
            DISK.rename(folder / BEFORE, folder / GONE)
            DISK.sync(folder)
            _remove(folder / GONE)


def set_aside(folder: Path, names: Sequence[str]) -> None:
    """Move these out of the way, one after the other; the last says that it is done."""
    with explained("start over", folder):
        (folder / BEFORE).mkdir()
        _move(folder, folder / BEFORE, names)


def _put_back(folder: Path, names: Sequence[str]) -> None:
    """Undo what was set aside, wholly or in part; the last name comes first, so that this, too, may be cut short."""
    aside, last = folder / BEFORE, names[-1]
    if not aside.exists():
        return
    if (aside / last).exists():
        for name in names:
            _remove(folder / name)
    _move(aside, folder, [last, *names])
    aside.rmdir()


def _move(here: Path, there: Path, names: Sequence[str]) -> None:
    for name in names:
        if (here / name).exists() or (here / name).is_symlink():
            DISK.rename(here / name, there / name)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
