"""Print the tests that mirror what was changed since a branch: `make check` runs them.

`src/regard/nn/mixers/full.py` is tested by `tests/nn`, `src/regard/spec.py` by `tests/test_spec.py`, and so on: a package has
a folder of its name, and what has none is in the table below. Uncommitted and new files count. The laws, twins and commands
can fail for any change of the package; `make test` runs them.

`python -m tests.changed [--base BRANCH]` prints one line of paths for pytest.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
ALWAYS = ("tests/test_tree.py", "tests/test_layers.py", "tests/test_errors.py")
"""Tests that read all modules, in seconds."""
MIRRORS: dict[str, tuple[str, ...]] = {
    "src/regard/__init__.py": ("tests/test_api.py", "tests/test_readme.py", "tests/test_release.py"),
    "src/regard/__main__.py": ("tests/test_cli.py",),
    "src/regard/api": ("tests/test_api.py", "tests/test_evaluation.py"),
    "src/regard/files": tuple(f"tests/test_{name}.py" for name in ("folder", "storage", "tensors", "user_file")),
    "src/regard/laws": ("tests/laws", "tests/verbs/test_check.py"),
    "src/regard/nn/mixers": ("tests/nn", "tests/laws"),
    "src/regard/recipes": ("tests/recipes", "tests/test_docs.py"),
    "src/regard/stopping.py": ("tests/engine/test_stopping.py",),
    "bench": ("tests/test_bench.py", "tests/test_smoke.py", "tests/test_readme.py"),
    "results": ("tests/test_bench.py", "tests/test_readme.py", "tests/test_provenance.py"),
    "docs": ("tests/test_docs.py", "tests/test_security_page.py"),
    "docs/lessons": ("tests/test_lessons.py",),
    "page": ("tests/serve/test_page_build.py",),
    "README.md": ("tests/test_readme.py",),
    "pyproject.toml": ("tests/test_release.py", "tests/test_lowest.py"),
    "CHANGELOG.md": ("tests/test_release.py",),
    "CITATION.cff": ("tests/test_release.py",),
    ".github": ("tests/test_release.py",),
}
"""Tests of what has no folder or file of its name; the longest path counts."""


def find_tests(changed: Iterable[str]) -> list[str]:
    """Return the folders and files of tests that mirror these paths, none inside another."""
    found = {test for path in changed for test in mirror(path)} | set(ALWAYS)
    return sorted(test for test in found if not any(other != test and test.startswith(f"{other}/") for other in found))


def mirror(path: str) -> tuple[str, ...]:
    """Return the tests of one path; nothing for a path without tests of its own, such as a license."""
    parts = Path(path).parts
    for length in range(len(parts), 0, -1):
        if tests := MIRRORS.get("/".join(parts[:length])):
            return tests
    if parts[:2] == ("src", "regard"):
        own = f"tests/{parts[2]}" if len(parts) > 3 else f"tests/test_{Path(path).stem}.py"
        return (own,) if (ROOT / own).exists() else ()
    if parts[0] == "tests" and (ROOT / path).exists():
        if parts[-1].startswith("test_"):
            return (path,)
        return (f"tests/{parts[1]}",) if len(parts) > 2 else ()  # a helper: all tests beside it
    return ()


def list_changes(base: str) -> list[str]:
    """Return the paths that differ from where this branch left `base`, and files that git does not know yet."""
    start = _ask_git("merge-base", base, "HEAD").strip()
    return [
        *_ask_git("diff", "--name-only", start).splitlines(),
        *_ask_git("ls-files", "--others", "--exclude-standard").splitlines(),
    ]


def _ask_git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"git {' '.join(words)} failed: {done.stderr.strip()}; name a branch that there is: make check BASE=…")
    return done.stdout


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m tests.changed", description=__doc__)
    arguments.add_argument("--base", default="main", help="the branch to compare with")
    print(*find_tests(list_changes(arguments.parse_args().base)))


if __name__ == "__main__":
    main()
