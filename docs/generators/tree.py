"""The package as a tree: every file with the first line of its docstring."""

from __future__ import annotations

from pathlib import Path

from docs.generators.spec_docs import first_line

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "regard"
WIDTH = 60
"""Characters that the line of a file may have."""


def lines() -> list[tuple[int, str, str]]:
    """Depth, name and line of every file and folder, files of a folder before the folders in it."""
    return list(_walk(PACKAGE, 0))


def _walk(folder: Path, depth: int) -> list[tuple[int, str, str]]:
    found = []
    for path in sorted(folder.glob("*.py")):
        if path.stem != "__init__":
            found.append((depth, path.name, first_line(path)))
    for path in sorted(p for p in folder.iterdir() if (p / "__init__.py").exists()):
        recipes = ", ".join(sorted(p.stem for p in path.glob("*.yaml")))
        found.append((depth, f"{path.name}/", recipes or first_line(path / "__init__.py")))
        found += _walk(path, depth + 1)
    return found


def page() -> str:
    """The tree as a block of text."""
    width = max(2 * depth + len(name) for depth, name, _ in lines()) + 2
    rows = (f"{'  ' * depth + name:<{width}}{line}".rstrip() for depth, name, line in lines())
    return "\n".join(["```text", "regard/", *(f"  {row}" for row in rows), "```"])
