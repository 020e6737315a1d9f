"""At which commit a figure was made, and whether the code under it has changed since, as far as git can say."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from bench.entry import ROOT

PACKAGE = "src/regard"
APART = ("conversion", "interpret", "laws", "report", "serve", "studies")
"""Packages under which no figure stands that `BESIDE` does not name."""
DECODING = ("decode", "engine", "families", "files", "model", "nn", "spec.py", "machine.py")
ONLY = {"bench-decode": DECODING, "bench-attention": ("families", "model", "nn", "spec.py", "machine.py")}
"""The packages of results that stand on few, by the beginning of their names."""
BESIDE = {
    "study-": ("studies",), "complexity": ("studies",), "statistics": ("studies",), "faithfulness-": ("interpret",),
    "look-inside": ("interpret", "report"), "bench-serve": ("serve",), "smollm2": ("conversion",), "int8-bleu": ("conversion",),
    "bench-shell": ("conversion",), "pretrain-protein": ("studies/student_t.py",),
}  # fmt: skip
"""Packages of `APART` under results whose names begin so."""
UNKNOWN = "whether the code under it has changed since is not known here"


def list_paths(name: str, command: str) -> list[str]:
    """What a result depends on, as git takes it: its bench, and the packages that it measures."""
    benches = [f"{module.replace('.', '/')}.py" for module in shlex.split(command) if module.startswith("bench.")]
    benches = [path for path in benches if find_spec(path[:-3].replace("/", ".")) is not None]
    for start, packages in ONLY.items():
        if name.startswith(start):
            return [*benches, *(f"{PACKAGE}/{package}" for package in packages)]
    own = {package for start, packages in BESIDE.items() if name.startswith(start) for package in packages}
    apart = [f":(exclude){PACKAGE}/{package}" for package in APART if package not in own]
    return [*benches, PACKAGE, *(f"{PACKAGE}/{package}" for package in own if "/" in package), *apart]


def describe_changes(name: str, command: str, commit: str, root: Path = ROOT) -> str:
    """Whether the code under a result is still that of its commit."""
    paths = list_paths(name, command)
    files = ask_git(("diff", "--name-only", commit, "HEAD", "--", *paths), root)
    if files is None:
        return UNKNOWN
    if not files:
        return "the code under it has not changed since"
    return f"the code under it has changed since, {len(files):,} file{'s' * (len(files) > 1)}"


def date_commit(commit: str, root: Path = ROOT) -> str:
    """The day of a commit; empty where it is not known."""
    return "".join(ask_git(("show", "-s", "--format=%cs", f"{commit}^{{commit}}"), root) or [])


@cache
def ask_git(words: Sequence[str], root: Path) -> list[str] | None:
    """The lines that git answers; nothing where there is no git, no repository or no such commit."""
    try:
        done = subprocess.run(["git", *words], capture_output=True, text=True, cwd=root)
    except OSError:
        return None
    return done.stdout.split("\n")[:-1] if done.returncode == 0 else None
