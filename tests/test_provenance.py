"""A figure says whether the code under it has changed since it was made, and does not guess where git cannot say."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from bench import provenance
from bench.provenance import APART, BESIDE, DECODING, ONLY, PACKAGE, UNKNOWN, date_commit, describe_changes, list_paths
from bench.readme import stored


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit of a bench, a layer and a server."""
    root = tmp_path / "origin"
    for path in ("bench/decode.py", "bench/lm.py", f"{PACKAGE}/nn/layer.py", f"{PACKAGE}/serve/app.py"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("one\n", encoding="utf-8")
    for name, value in (("GIT_CONFIG_GLOBAL", os.devnull), ("GIT_CONFIG_SYSTEM", os.devnull)):
        monkeypatch.setenv(name, value)
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "someone")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "someone@example.org")
        monkeypatch.setenv(f"GIT_{role}_DATE", "2025-03-04T05:06:07Z")
    git(root, "init", "--quiet")
    commit(root)
    return root


def git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def commit(root: Path) -> str:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "a change")
    provenance.ask_git.cache_clear()
    return git(root, "rev-parse", "--short", "HEAD")


def change(root: Path, path: str) -> None:
    with (root / path).open("a", encoding="utf-8") as file:
        file.write("more\n")
    commit(root)


def test_a_figure_says_whether_the_code_under_it_has_changed(repository: Path) -> None:
    made = git(repository, "rev-parse", "--short", "HEAD")

    def ask(name: str, command: str) -> str:
        return describe_changes(name, command, made, repository)

    lm, decode, serve = (
        ("bench-lm-train", "bench.lm train"),
        ("bench-decode-tiny", "bench.decode"),
        ("bench-serve", ""),
    )
    same = "the code under it has not changed since"
    assert ask(*lm) == ask(*decode) == ask(*serve) == same
    assert date_commit(made, repository) == "2025-03-04"
    change(repository, f"{PACKAGE}/serve/app.py")
    assert ask(*lm) == ask(*decode) == same
    assert ask(*serve) == "the code under it has changed since, 1 file"
    change(repository, "bench/lm.py")
    assert ask(*lm) == "the code under it has changed since, 1 file"
    assert ask(*decode) == same
    change(repository, f"{PACKAGE}/nn/layer.py")
    assert ask(*lm) == ask(*serve) == "the code under it has changed since, 2 files"
    assert ask(*decode) == "the code under it has changed since, 1 file"


def test_what_git_cannot_say_is_unknown(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = git(repository, "rev-parse", "--short", "HEAD")
    change(repository, "bench/lm.py")
    shallow, plain = tmp_path / "shallow", tmp_path / "plain"
    git(tmp_path, "clone", "--quiet", "--depth", "1", repository.as_uri(), str(shallow))
    plain.mkdir()
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    for root in (shallow, plain):
        assert describe_changes("gpt", "regard train gpt", made, root) == UNKNOWN
        assert date_commit(made, root) == ""
    monkeypatch.setenv("PATH", "")
    provenance.ask_git.cache_clear()
    assert describe_changes("gpt", "regard train gpt", made, repository) == UNKNOWN


def test_the_declared_packages_are_there() -> None:
    root = Path(provenance.ROOT)
    for package in (*APART, *DECODING, *(p for each in (*BESIDE.values(), *ONLY.values()) for p in each)):
        assert (root / PACKAGE / package).exists(), package
    for start in (*BESIDE, *ONLY):
        assert any(name.startswith(start) for name in stored()), start
    for name, result in stored().items():
        for path in list_paths(name, result["command"]):
            assert (root / path.removeprefix(":(exclude)")).exists(), path
