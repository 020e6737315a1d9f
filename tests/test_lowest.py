"""The lowest versions allowed are those that pyproject.toml says, without torch."""

from __future__ import annotations

from pathlib import Path

from tests.lowest import lowest

PROJECT = """
[project]
dependencies = ["torch>=2.8", "numpy>=1.26"]
[project.optional-dependencies]
plots = ["matplotlib>=3.8"]
test = ["pytest>=8", "regard[plots]"]
"""


def test_bounds_become_pins() -> None:
    assert lowest(PROJECT) == ["numpy==1.26"]
    assert lowest(PROJECT, "test") == ["numpy==1.26", "pytest==8", "matplotlib==3.8"]


def test_every_dependency_has_a_bound() -> None:
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    pins = lowest(text, "test", "lint", "bench")
    assert all(pin.count("==") == 1 for pin in pins), pins
