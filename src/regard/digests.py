"""SHA-256 digests of plugins and files that results rest on.

The code of a plugin is its file and the modules that it imports from its folder, found without running them. It is read when
the plugin is loaded: what a file is changed to afterwards did not run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from modulefinder import ModuleFinder
from pathlib import Path

DIGITS = 16
"""Hexadecimal digits of a digest that are kept."""
INSTALLED = ("site-packages", "dist-packages")
"""Folders whose modules have nothing to do with one another."""

_loaded: dict[Path, dict[str, str]] = {}
"""The code of every file that was asked about, when it was first asked about or loaded."""


class _Imports(ModuleFinder):
    """Finds the modules that a file imports below one folder; if it belongs to a package, only those of the package."""

    def __init__(self, root: Path, package: str) -> None:
        super().__init__([str(root)], excludes=["regard"])
        self._package = package

    def find_module(self, name: str, path: str | None, parent: object = None) -> object:  # type: ignore[override]
        if path is None and self._package and name != self._package:
            raise ImportError(name)
        return super().find_module(name, path, parent)  # type: ignore[arg-type]


def note_code(file: Path) -> None:
    """Read the code of a plugin that is being loaded."""
    _loaded[file.resolve()] = _digest_imports(file.resolve())


def digest_code(files: Iterable[Path]) -> dict[str, str]:
    """Return the digest of each of these files of code and of the modules they import, by path from their folder."""
    out: dict[str, str] = {}
    for file in files:
        if file.resolve() not in _loaded:
            note_code(file)
        for name, digest in _loaded[file.resolve()].items():
            out[name if out.get(name, digest) == digest else f"{file.parent.name}/{name}"] = digest
    return dict(sorted(out.items()))


def digest_files(names: Sequence[str]) -> str:
    """Return one digest of these files and of all files in these folders; a missing one counts as empty."""
    whole = hashlib.sha256()
    for place in map(Path, names):
        inner = sorted(path for path in place.rglob("*") if path.is_file()) if place.is_dir() else [place]
        for path in inner:
            name = path.relative_to(place).as_posix()
            whole.update(f"{name} {_digest(path)}\n".encode(errors="surrogateescape"))
    return whole.hexdigest()[:DIGITS]


def _digest_imports(file: Path) -> dict[str, str]:
    root, package = _place(file)
    finder = _Imports(root, package)
    try:
        finder.run_script(str(file))
        names = [getattr(module, "__file__", None) for module in finder.modules.values()]
        found = [Path(name).resolve() for name in names if name]
    except (SyntaxError, ValueError, OSError):  # whoever runs it will report that
        found = []
    return {path.relative_to(root).as_posix(): _digest(path) for path in {file, *found} if path.is_relative_to(root)}


def _place(file: Path) -> tuple[Path, str]:
    """Return the folder that imports of a file start from, and the package the file belongs to, if any."""
    root, package = file.parent, ""
    while (root / "__init__.py").exists():
        root, package = root.parent, root.name
    return root, package or (file.stem if root.name in INSTALLED else "")


def _digest(path: Path) -> str:
    if not path.is_file():
        return "missing"
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()[:DIGITS]
