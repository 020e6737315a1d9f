"""The tree of files: names that are told apart, first lines that fit, and tests that are marked for what they compare."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "regard"
COMPARES = re.compile(r"allclose|assert_close|torch\.equal|isclose")
SAME_STEM = {
    "packing": "how texts share a row, and the law that sharing changes nothing",
    "frames": "the task of piano rolls, by the name that recipes use, and messages between the processes of a server",
}
"""Stems that two files of the package may share, and why."""
NOT_NUMERIC = {
    "tests/conversion/test_faults.py": "reads what was written",
    "tests/conversion/test_gguf.py": "reads what was written",
    "tests/model/test_cost.py": "counts operations",
    "tests/conversion/test_pickle_weights.py": "reads what was written",
    "tests/test_bench.py": "figures of text",
    "tests/nn/test_coords.py": "whole numbers",
    "tests/nn/test_shape.py": "whole numbers",
    "tests/test_folder.py": "reads what was written",
    "tests/training/test_time_estimate.py": "a clock of its own",
    "tests/test_tensors.py": "reads what was written",
    "tests/test_tree.py": "names them",
}


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")


def test_no_two_files_have_one_stem() -> None:
    places = defaultdict(list)
    for path in modules():
        places[path.stem].append(str(path.relative_to(PACKAGE)))
    twice = {stem: paths for stem, paths in places.items() if len(paths) > 1}
    assert twice.keys() == SAME_STEM.keys(), twice


def test_first_lines_fit_the_tree() -> None:
    """The first line of a module is its line in the architecture tree."""
    long = []
    for path in sorted(PACKAGE.rglob("*.py")):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        assert text or path.name == "__init__.py", f"{path} has no docstring"
        if len(text.partition("\n")[0]) > 60:
            long.append(str(path.relative_to(PACKAGE)))
    assert not long


def test_tests_that_compare_floats_are_marked_numeric() -> None:
    unmarked = set()
    for path in ROOT.glob("tests/**/test_*.py"):
        text = path.read_text(encoding="utf-8")
        if COMPARES.search(text) and not re.search(r"^pytestmark = .*\bnumeric\b", text, flags=re.M):
            unmarked.add(str(path.relative_to(ROOT)))
    assert unmarked <= set(NOT_NUMERIC), "add `pytestmark = pytest.mark.numeric`"


def test_no_two_classes_have_one_name() -> None:
    places = defaultdict(list)
    for path in modules():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(PACKAGE)))
    assert not {name: paths for name, paths in places.items() if len(paths) > 1}
