"""`make check` finds the tests of what was changed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import changed
from tests.changed import ALWAYS, MIRRORS, ROOT, find_tests, list_changes, mirror


def test_every_module_of_the_package_has_tests_that_exist() -> None:
    modules = [path.relative_to(ROOT).as_posix() for path in (ROOT / "src" / "regard").rglob("*.py")]
    assert len(modules) > 400
    assert [path for path in modules if not mirror(path)] == []
    named = {test for tests in (*MIRRORS.values(), ALWAYS) for test in tests} | {t for m in modules for t in mirror(m)}
    assert [test for test in sorted(named) if not (ROOT / test).exists()] == []


@pytest.mark.parametrize(
    ("path", "tests"),
    [
        ("src/regard/data/filters/pipeline.py", ("tests/data",)),
        ("src/regard/spec.py", ("tests/test_spec.py",)),
        ("src/regard/nn/mixers/full.py", ("tests/nn", "tests/laws")),
        ("docs/lessons/order.md", ("tests/test_lessons.py",)),
        ("tests/decode/test_beam.py", ("tests/decode/test_beam.py",)),
        ("tests/decode/toys.py", ("tests/decode",)),
        ("tests/decode/test_removed.py", ()),
        ("LICENSE", ()),
    ],
)
def test_a_path_is_mirrored_by_its_tests(path: str, tests: tuple[str, ...]) -> None:
    assert mirror(path) == tests


def test_no_test_is_listed_inside_of_a_folder_that_is_listed() -> None:
    assert find_tests(["tests/decode/test_beam.py", "src/regard/decode/beam.py"]) == sorted(["tests/decode", *ALWAYS])
    assert find_tests([]) == sorted(ALWAYS)


def test_committed_edited_and_new_files_are_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "--initial-branch=main")
    for name in ("kept", "edited"):
        (tmp_path / name).write_text("1")
    git("add", ".")
    git("commit", "-m", "first")
    git("switch", "-c", "mine")
    (tmp_path / "committed").write_text("1")
    git("add", ".")
    git("commit", "-m", "second")
    (tmp_path / "edited").write_text("2")
    (tmp_path / "new").write_text("1")
    monkeypatch.setattr(changed, "ROOT", tmp_path)
    assert sorted(list_changes("main")) == ["committed", "edited", "new"]
    with pytest.raises(SystemExit, match="name a branch that there is: make check BASE="):
        list_changes("nowhere")
