"""Progress for people: a bar with loss, speed and time left on a terminal, one line a validation in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any


class Progress:
    """Writes to stderr only. `quiet` says nothing at all; nor does it once nobody reads: training goes on all the same."""

    def __init__(self, total: int, done: int = 0, *, quiet: bool = False) -> None:
        self.quiet, self.total, self.done = quiet or sys.stderr is None, total, done
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        with self._heard_or_not():
            if not self.quiet and sys.stderr.isatty():
                self._bar, self._task = _bar(self.total, self.done)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._heard_or_not():
            if self._bar is not None:
                self._bar.stop()
        self._bar = None

    def step(self, step: int, loss: float, speed: float) -> None:
        with self._heard_or_not():
            if self._bar is not None:
                self._bar.update(self._task, completed=step, loss=f"loss {loss:.3f}", speed=f"{speed:,.0f} tokens/s")

    def say(self, text: str) -> None:
        """A line that stays."""
        if self.quiet:
            return
        with self._heard_or_not():
            if self._bar is not None:
                self._bar.console.print(text, markup=False, highlight=False)
            else:
                print(text, file=sys.stderr, flush=True)

    @contextmanager
    def _heard_or_not(self) -> Iterator[None]:
        """A reader that has gone (`2>&1 | head`), a closed terminal, a full disk: from then on this is quiet."""
        try:
            yield
        except OSError:
            bar, self._bar, self.quiet = self._bar, None, True
            with suppress(OSError):
                if bar is not None:
                    bar.stop()


def _bar(total: int, done: int) -> tuple[Any, Any]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    bar = Bar(
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[loss]}"),
        TextColumn("{task.fields[speed]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    bar.start()
    return bar, bar.add_task("train", total=total, completed=done, loss="", speed="")
