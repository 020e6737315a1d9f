"""Each row of the package imports only rows above it: this reads the imports of every module and says which do not.

The table is that of the README, in the same order. `may` names the rows a row imports; it may also import what they may.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import regard

PACKAGE = Path(regard.__file__).parent

ROWS: dict[str, tuple[str, str]] = {
    # row: (its modules, the rows it may import)
    "base": ("errors digests registry spec machine stopping", ""),
    "files": ("files", "base"),
    "recipes": ("recipes", "files"),
    "report": ("report", "base"),
    "text": ("text", "files"),
    "data": ("data", "text"),
    "metrics": ("metrics", "data"),
    "core": ("nn.core nn.layers nn.positions nn.attention", "base"),
    "mixers": ("nn.mixers", "core"),
    "blocks": ("nn.blocks", "mixers"),
    "model": ("model", "blocks"),
    "laws": ("laws", "model"),
    "families": ("families", "model"),
    "decode": ("decode", "model"),
    "engine": ("engine", "files decode"),
    "tasks": ("tasks", "data metrics decode model report"),
    "interpret": ("interpret", "tasks report"),
    "serialization": ("serialization", "tasks files engine recipes"),
    "conversion": ("conversion", "serialization families"),
    "training": ("training", "serialization report families"),
    "api": ("api", "training decode engine families conversion interpret"),
    "studies": ("studies", "api"),
    "serve": ("serve", "api"),
    "verbs": ("verbs", "studies report laws interpret serve"),
    "top": ("cli __main__", "verbs"),
}
FREE = {"regard", "regard.nn"}
"""Packages without a row: only their `__init__`, which may offer what is below it."""

MODULES = {
    "regard"
    + "".join(f".{part}" for part in path.relative_to(PACKAGE).with_suffix("").parts if part != "__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


def row_of(module: str) -> str | None:
    """The row a module of ours stands in, by the longest name that fits."""
    fits = [
        (len(name), row)
        for row, (names, _) in ROWS.items()
        for name in names.split()
        if module == f"regard.{name}" or module.startswith(f"regard.{name}.")
    ]
    return max(fits)[1] if fits else None


def reach(row: str) -> set[str]:
    """The row itself and all it may import."""
    return {row}.union(*(reach(above) for above in ROWS[row][1].split()))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Every import of ours in a file, also inside functions, with its line."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name.split(".")[0] == "regard")
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield node.lineno, "(a relative import)"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "regard":
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield node.lineno, inner if inner in MODULES else str(node.module)


def trespasses(module: str, path: Path) -> list[str]:
    row = row_of(module)
    out = []
    for line, name in sorted(set(imports(path))):
        other = row_of(name)
        if name.startswith("("):
            out.append(f"line {line}: {name}; write the whole name")
        elif row is not None and other not in reach(row) and name not in FREE:
            out.append(f"line {line}: {name} stands in row {other!r}, which {row!r} may not import")
    return out


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_rows_above_it(module: str) -> None:
    assert module in FREE or row_of(module), f"{module} stands in no row; give it a place in ROWS"
    assert not trespasses(module, MODULES[module])


def test_every_row_imports_only_rows_before_it() -> None:
    seen: list[str] = []
    for row, (_, may) in ROWS.items():
        assert set(may.split()) <= set(seen), row
        seen.append(row)


def test_every_row_is_there() -> None:
    named = [f"regard.{name}" for names, _ in ROWS.values() for name in names.split()]
    assert [name for name in named if name not in MODULES] == []


def test_text_and_nn_do_not_know_each_other() -> None:
    assert not {"text", "data"} & reach("families")
    assert "nn" not in reach("data")


def test_the_reader_finds_imports_wherever_they_hide(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text(
        "import torch, regard.model.build\n"
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from regard.nn.blocks import body\n"
        "def f():\n    from regard.tasks.lm import Task\n"
        "from . import y\n"
    )
    assert trespasses("regard.nn.core.mask", file) == [
        "line 1: regard.model.build stands in row 'model', which 'core' may not import",
        "line 4: regard.nn.blocks.body stands in row 'blocks', which 'core' may not import",
        "line 6: regard.tasks.lm stands in row 'tasks', which 'core' may not import",
        "line 7: (a relative import); write the whole name",
    ]


TORCHLESS = [m for m in MODULES if row_of(m) in ("base", "report", "text", "data") and m != "regard.data.batch"]
"""All but the batch, which is where numbers become tensors."""


@pytest.mark.parametrize("module", TORCHLESS)
def test_torch_is_not_imported_by_what_can_do_without(module: str) -> None:
    top = ast.parse(MODULES[module].read_text()).body
    names = {
        name.split(".")[0]
        for node in top
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""])
    }
    assert "torch" not in names
