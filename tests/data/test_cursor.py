"""A place in a file: what is before it and after it, and places that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.data.cursor import Cursor
from regard.errors import DataError, RegardError, SpecError

TEXT = "import os\n\ndef f():\r\n    return é\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a file.py"
    path.write_bytes(TEXT.encode())
    return path


@pytest.mark.parametrize(
    ("place", "before"),
    [
        ("1:1", ""),
        ("1:8", "import "),
        ("1:10", "import os"),
        ("1", "import os"),
        ("2:1", "import os\n"),
        ("3:9", "import os\n\ndef f():"),
        ("3", "import os\n\ndef f():"),
        ("4:13", "import os\n\ndef f():\r\n    return é"),
        ("5:1", TEXT),
    ],
)
def test_what_is_around_a_place(file: Path, place: str, before: str) -> None:
    cursor = Cursor.read(f"{file}:{place}")
    assert (cursor.before, cursor.after) == (before, TEXT[len(before) :])


@pytest.mark.parametrize(
    ("place", "kind", "said"),
    [
        ("{}:6:1", DataError, "{} has 5 lines, got line 6"),
        ("{}:0:1", DataError, "{} has 5 lines, got line 0"),
        ("{}:1:11", DataError, "line 1 of {} has columns 1 to 10, got column 11"),
        ("{}:3:10", DataError, "line 3 of {} has columns 1 to 9, got column 10"),
        ("{}:1:0", DataError, "line 1 of {} has columns 1 to 10, got column 0"),
        ("{}", SpecError, "--at takes FILE:LINE:COLUMN, such as main.py:12:8, got '{}'"),
        ("{}:x:1", DataError, "cannot read {}:x: No such file"),
        ("{}:1:-1", SpecError, "--at takes FILE:LINE:COLUMN"),
        (":1:2", SpecError, "--at takes FILE:LINE:COLUMN"),
        ("none.py:1:2", DataError, "cannot read none.py: No such file or directory"),
    ],
)
def test_places_that_are_none(file: Path, place: str, kind: type[RegardError], said: str) -> None:
    with pytest.raises(kind) as error:
        Cursor.read(place.format(file))
    assert said.format(file) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_binary_file_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "x.pyc"
    path.write_bytes(b"\x00\x01\xff")
    with pytest.raises(DataError, match=r"x\.pyc, line 1: not UTF-8 at byte 2"):
        Cursor.read(f"{path}:1:1")
    path.write_bytes(b"a\x00b")
    with pytest.raises(DataError, match=r"a NUL at byte 1: this is not text"):
        Cursor.read(f"{path}:1:1")


def test_it_is_shown_with_what_is_around_it() -> None:
    assert str(Cursor("x" * 100 + "ab", "cd")) == "x" * 22 + "ab▮cd"
    assert str(Cursor("ab")) == "ab▮"
