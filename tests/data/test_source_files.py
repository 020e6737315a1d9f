"""Folders of source files: which are read, in what order, which are held out, and what is said about bad ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.data.source_files import (
    LIBRARY_WITHOUT,
    SourceFile,
    describe_bad,
    hold_out_files,
    list_library,
    list_sources,
    read_sources,
)
from regard.errors import DataError


def write(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        path = folder / name.replace("__", "/").replace("_py", ".py").replace("_c", ".c")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_a_folder_in_sorted_order_without_hidden_empty_and_other_files(tmp_path: Path) -> None:
    write(tmp_path, z_py="z", a__b_py="b", a__a_py="a", main_c="c", empty_py="")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "hook.py").write_text("x")
    (tmp_path / "odd.py").mkdir()
    assert [file.name for file in list_sources([str(tmp_path)], [".py"])] == ["a/a.py", "a/b.py", "z.py"]
    assert [file.name for file in list_sources([str(tmp_path)], [".c", "z.py"])] == ["main.c", "z.py"]
    one = list_sources([str(tmp_path / "main.c"), str(tmp_path / "a")], [".py"])
    assert [file.name for file in one] == ["main.c", "a.py", "b.py"], "a file that is named is read whatever its name"


def test_a_folder_without_sources_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no \.py files; set data\.suffixes to those of your sources"):
        list_sources([str(tmp_path)], [".py"])


def test_the_standard_library() -> None:
    files = list_library()
    names = [file.name for file in files]
    assert {"argparse.py", "json/decoder.py", "asyncio/base_events.py"} <= set(names)
    assert names == sorted(names)
    assert not any(LIBRARY_WITHOUT.intersection(Path(name).parts[:-1]) for name in names)
    assert not any(name.startswith(("test/", "idlelib/", "encodings/", "pydoc_data/")) for name in names)


def test_whole_files_are_held_out_by_their_names() -> None:
    files = {SourceFile(Path(f"{i}.py"), f"{i}.py"): str(i) for i in range(40)}
    train, valid = hold_out_files(files, 0.1)
    assert (len(train), len(valid)) == (36, 4)
    assert sorted([*train, *valid], key=int) == [*files.values()]
    assert train == sorted(train, key=int), "in their order"
    moved = {SourceFile(Path("elsewhere") / file.path, file.name): text for file, text in reversed(files.items())}
    assert {*hold_out_files(moved, 0.1)[1]} == {*valid}
    two, one = dict([*files.items()][:2]), dict([*files.items()][:1])
    assert len(hold_out_files(two, 0.01)[1]) == 1, "at least one"
    with pytest.raises(DataError, match="1 file is not enough to hold some out; name more files, or some with --valid"):
        hold_out_files(one, 0.5)
    with pytest.raises(DataError, match=r"^2 files are not enough to hold some out"):
        hold_out_files(two, 0.9)


def test_a_file_that_is_no_text_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text("x = 1\r\n")
    (tmp_path / "bad.py").write_bytes(b"a = 1\nb = '\xff'\n")
    (tmp_path / "nul.py").write_bytes(b"a\0b")
    files = list_sources([str(tmp_path)], [".py"])
    with pytest.raises(
        DataError, match=r"bad\.py, line 2: not UTF-8 at byte 11.*; or leave such files out with --on-bad"
    ):
        read_sources(files)
    texts, bad = read_sources(files, drop_bad=True)
    assert ([*texts.values()], bad) == (["x = 1\r\n"], ["bad.py", "nul.py"])
    with pytest.raises(DataError, match="all files were left out; name some that are UTF-8 text"):
        read_sources(files[:1], drop_bad=True)
    assert describe_bad(bad) == ["2 files are not UTF-8 text and left out: bad.py, nul.py"]
    assert describe_bad(["a", "b", "c", "d"]) == ["4 files are not UTF-8 text and left out: a, b, c and 1 more"]
    assert describe_bad(["a"]) == ["1 file is not UTF-8 text and left out: a"]
    assert describe_bad([]) == []
    with pytest.raises(DataError, match=r"there is no file or folder .*none\.py"):
        list_sources([str(tmp_path / "none.py")], [".py"])
