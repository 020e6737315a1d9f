"""Digests of code and files: what is read, and what a change of it does."""

from __future__ import annotations

from pathlib import Path

from regard.digests import digest_code, digest_files, note_code


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_code_is_a_file_and_what_it_imports_from_its_folder(tmp_path: Path) -> None:
    write(
        tmp_path, plugin="def f():\n    import near, pack.inner, torch, nowhere\n", near="from far import x\n", far="x = 1\n",
        pack__init="", pack__inner="from . import beside\n", pack__beside="", apart="",
    )  # fmt: skip
    (tmp_path / "pack" / "init.py").rename(tmp_path / "pack" / "__init__.py")
    found = digest_code([tmp_path / "plugin.py"])
    assert list(found) == ["far.py", "near.py", "pack/__init__.py", "pack/beside.py", "pack/inner.py", "plugin.py"]


def test_code_is_that_which_was_loaded(tmp_path: Path) -> None:
    write(tmp_path, plugin="import near\n", near="x = 1\n")
    before = digest_code([tmp_path / "plugin.py"])
    write(tmp_path, near="x = 2\n")
    assert digest_code([tmp_path / "plugin.py"]) == before
    note_code(tmp_path / "plugin.py")
    after = digest_code([tmp_path / "plugin.py"])
    assert after["near.py"] != before["near.py"]
    assert after["plugin.py"] == before["plugin.py"]


def test_code_of_a_package_is_that_of_the_package_alone(tmp_path: Path) -> None:
    write(tmp_path, own__x="import own.y, other\n", own__y="", other="")
    (tmp_path / "own" / "__init__.py").write_text("")
    assert list(digest_code([tmp_path / "own" / "x.py"])) == ["own/__init__.py", "own/x.py", "own/y.py"]


def test_code_that_cannot_be_read_is_its_own_file(tmp_path: Path) -> None:
    write(tmp_path, broken="def (\n")
    assert list(digest_code([tmp_path / "broken.py"])) == ["broken.py"]


def test_plugins_of_one_name_are_told_apart(tmp_path: Path) -> None:
    write(tmp_path, a__mine="x = 1\n", b__mine="x = 2\n")
    assert list(digest_code([tmp_path / "a" / "mine.py", tmp_path / "b" / "mine.py"])) == ["b/mine.py", "mine.py"]


def test_files_and_folders_are_digested_by_content(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("1")
    whole = digest_files([str(tmp_path / "in")])
    (tmp_path / "in").rename(tmp_path / "moved")
    assert digest_files([str(tmp_path / "moved")]) == whole
    (tmp_path / "moved" / "a").rename(tmp_path / "moved" / "b")
    assert digest_files([str(tmp_path / "moved")]) != whole
    assert digest_files([str(tmp_path / "none")]) != digest_files([str(tmp_path / "moved" / "b")])
