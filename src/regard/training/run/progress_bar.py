"""Progress for people: a bar, or lines in a pipe.

On a terminal and in a notebook there is a bar with loss, speed and remaining time; in a pipe, one line per validation.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from regard.errors import make_printable
from regard.report.number import duration

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID


class Progress:
    """Writes to stderr only. With `quiet`, or once nobody reads any more, it writes nothing, and training goes on."""

    def __init__(self, total: int, done: int = 0, *, quiet: bool = False) -> None:
        self.quiet, self.total, self.done = quiet or sys.stderr is None, total, done
        self._bar: tuple[RichProgress, TaskID] | None = None

    def __enter__(self) -> Progress:
        with self._ignoring_closed_streams():
            if not self.quiet and wants_bar(sys.stderr):
                self._bar = _start_bar(self.total, self.done)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._ignoring_closed_streams():
            if self._bar is not None:
                self._bar[0].stop()
        self._bar = None

    def step(self, step: int, loss: float, speed: float, left: float) -> None:
        """Show a step with its loss, its tokens per second, and the seconds left until the run is done."""
        with self._ignoring_closed_streams():
            if self._bar is not None:
                bar, task = self._bar
                speeds, time = f"{speed:,.0f} tokens/s", f"{duration(left)} left"
                bar.update(task, completed=step, loss=f"loss {loss:.3f}", speed=speeds, left=time)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        if self.quiet:
            return
        text = make_printable(text)  # it may quote a corpus or the name of a file
        with self._ignoring_closed_streams():
            if self._bar is not None:
                self._bar[0].console.print(text, markup=False, highlight=False)
            else:
                print(text, file=sys.stderr, flush=True)

    @contextmanager
    def _ignoring_closed_streams(self) -> Iterator[None]:
        """Become quiet when stderr fails: a reader that is gone (`2>&1 | head`), a closed terminal, a full disk."""
        try:
            yield
        except OSError:
            bar, self._bar, self.quiet = self._bar, None, True
            with suppress(OSError):
                if bar is not None:
                    bar[0].stop()


def wants_bar(stream: TextIO) -> bool:
    """True if a bar is to be drawn: on a terminal, and in a notebook, whose stderr is no terminal."""
    return stream.isatty() or in_notebook()


def in_notebook() -> bool:
    """True if the kernel of a notebook runs this code (Jupyter, Colab), rather than Python or IPython in a terminal."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


def _start_bar(total: int, done: int) -> tuple[RichProgress, TaskID]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    bar = Bar(
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[loss]}"),
        TextColumn("{task.fields[speed]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        console=Console(stderr=True),  # rich itself finds out that it is in a notebook, and displays there
    )
    bar.start()
    return bar, bar.add_task("train", total=total, completed=done, loss="", speed="", left="")
