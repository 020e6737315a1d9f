"""Progress is for whoever reads it: where nobody does, it falls silent, and training goes on."""

from __future__ import annotations

import errno
import io
import json
import sys
import types
from pathlib import Path

import pytest

from regard.training.run.progress_bar import Progress, wants_bar
from tests.training.small import COPY, TINY
from tests.verbs.calling import start


class Deaf(io.StringIO):
    """A stream that takes some lines and then none."""

    def __init__(self, number: int, lines: int, *, terminal: bool = False) -> None:
        super().__init__()
        self.number, self.lines, self.terminal, self.tried = number, lines, terminal, 0

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        self.tried += 1
        if self.getvalue().count("\n") >= self.lines:
            raise OSError(self.number, "gone")
        return super().write(text)


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC, errno.EIO])
def test_it_falls_silent(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    stream = Deaf(number, 2)
    monkeypatch.setattr(sys, "stderr", stream)
    with Progress(9) as progress:
        for line in "abcde":
            progress.say(line)
    assert stream.getvalue() == "a\nb\n"
    assert stream.tried == 5, "two writes a line, and the first that fails is the last"


@pytest.mark.parametrize("lines", [0, 1])
def test_a_terminal_that_was_closed(monkeypatch: pytest.MonkeyPatch, lines: int) -> None:
    stream = Deaf(errno.EIO, lines, terminal=True)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("threading.excepthook", lambda _: None)  # the bar draws in a thread of its own
    with Progress(9) as progress:
        for step in range(3):
            progress.step(step, 0.5, 3.0, 60.0)
            progress.say("a")
    assert progress.quiet and sys.stderr is stream


def test_without_a_stream_there_is_nothing_to_say(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with Progress(9) as progress:
        progress.say("a")
    assert capsys.readouterr().out == ""


def test_a_run_that_nobody_follows_any_more_is_trained_to_its_end(tmp_path: Path) -> None:
    """`regard train … 2>&1 >/dev/null | head -1`."""
    sets = [word for path, value in {**COPY, **TINY}.items() for word in ("--set", f"{path}={json.dumps(value)}")]
    with start("train", "copy", "--out", tmp_path / "run", *sets) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.close()
        assert process.stderr.readline().startswith(b"model: ")
        process.stderr.close()
        out = process.stdout.read()
    assert (process.returncode, out.decode()) == (0, f"{tmp_path / 'run' / 'final'}\n")


class Shell:
    """What IPython calls itself: with a kernel in a notebook, without one in a terminal."""

    def __init__(self, *, kernel: bool) -> None:
        if kernel:
            self.kernel = object()


@pytest.mark.parametrize(
    ("terminal", "shell", "wanted"),
    [
        (True, None, True),
        (False, None, False),
        (False, Shell(kernel=True), True),
        (False, Shell(kernel=False), False),
    ],
    ids=["terminal", "pipe", "notebook", "ipython in a pipe"],
)
def test_who_gets_a_bar(monkeypatch: pytest.MonkeyPatch, terminal: bool, shell: Shell | None, wanted: bool) -> None:
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: shell  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    assert wants_bar(Deaf(errno.EIO, 9, terminal=terminal)) is wanted


def test_without_ipython_there_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not wants_bar(Deaf(errno.EIO, 9))
