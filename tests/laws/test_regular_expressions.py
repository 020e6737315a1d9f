"""Law: a regular expression of the package reads any text in linear time, by its structure.

A pattern that could take longer freezes a program, and every thread of it, on a text that somebody made for that.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.laws.backtracking import find_fault
from tests.laws.patterns import BOUNDED, PACKAGE, Pattern, find_patterns

PATTERNS = find_patterns()
SLOW = [
    (r"(a+)+b", "match", "exponential"),
    (r"(a*)*b", "match", "exponential"),
    (r"(a|a)*b", "match", "exponential"),
    (r"(a|ab|b)*c", "fullmatch", "exponential"),
    (r"\s*(.*?)\s*x", "match", "quadratic"),
    (r'"[^"\\]*(?:\\.[^"\\]*)*"', "search", "quadratic"),
    (r"\s*\(\d{4}\)$", "search", "quadratic"),
    (r"\s+$", "search", "quadratic"),
    (r"<[\w.:/-]*[a-z][\w.:/-]*>", "fullmatch", "quadratic"),
    (r"(?:[ \t]*\r?\n){2,}", "search", "quadratic"),
    (r"(?:[ \t]*+\r?\n){2,}", "search", "quadratic"),
    (r"a+b|a", "search", "quadratic"),
    (r"a(?:a*b)?", "search", "quadratic"),
    (r"a(?=\w*;)", "search", "quadratic"),
    (r"(?<=00)0++(?=[1-9])", "search", "quadratic"),
    (r"x*y*x*z", "match", "quadratic"),
    (r"\d{0,4000}b", "search", "quadratic"),
    (r"(?i)[a-z]*K*x", "match", "quadratic"),
]
LINEAR = [
    (r'"[^"\\]*(?:\\.[^"\\]*)*"', "match"),
    (r'(?s)"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', "search"),
    (r"\S+", "search"),
    (r"(?<!\s)\s*+\(\d{4}\)$", "search"),
    (r"(?<![ \t])(?:[ \t]*+\r?\n){2,}", "search"),
    (r"(?<=[.!?])\s+", "search"),
    (r"&(?=#?\w+;)", "search"),
    (r"(?<=&#)0++(?=[0-9])", "search"),
    (r"^\s+$", "search"),
    (r"\s*+x", "match"),
    (r"\bword\b", "search"),
    (r"'([^']*)'|(([A-Za-z])\3*)", "search"),
]


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.place)
def test_patterns_are_linear_by_their_structure(pattern: Pattern) -> None:
    faults = [str(fault) for mode in pattern.modes if (fault := find_fault(pattern.text, mode, pattern.flags))]
    assert not faults or pattern.file in BOUNDED, f"{pattern.place}: {pattern.text!r} is {'; '.join(faults)}"


def test_the_law_reads_every_pattern_of_the_package() -> None:
    """Nothing compiles patterns by another module or name, where the law would not find it."""
    hidden = re.compile(
        r"^ *(?:from re\b.*|import regex\b.*|from regex\b.*|import re as .*)|\bre2\b|_regex_engine", re.M
    )
    found = {str(path): hidden.findall(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")}
    assert not {path: lines for path, lines in found.items() if lines}
    assert len(PATTERNS) > 50
    assert not BOUNDED.keys() - {pattern.file for pattern in PATTERNS}


@pytest.mark.parametrize(("pattern", "mode", "growth"), SLOW)
def test_the_law_refuses_patterns_that_are_known_to_be_slow(pattern: str, mode: str, growth: str) -> None:
    fault = find_fault(pattern, mode)  # type: ignore[arg-type]
    assert fault is not None
    assert fault.growth == growth


@pytest.mark.parametrize(("pattern", "mode"), LINEAR)
def test_the_law_allows_patterns_that_are_linear(pattern: str, mode: str) -> None:
    assert find_fault(pattern, mode) is None  # type: ignore[arg-type]


def test_the_law_finds_patterns_in_names_and_joined_texts(tmp_path: Path) -> None:
    lines = [
        "import re",
        "J = '@@'",
        "A, B = re.compile('a'), re.compile(f'{J}+', re.S)",
        "re.split(J + 'b', x)",
        "B.fullmatch(y)",
    ]
    (tmp_path / "module.py").write_text("\n".join(lines))
    found = [(p.text, p.flags, p.modes) for p in find_patterns(tmp_path)]
    every = ("fullmatch", "match", "search")
    assert found == [("a", 0, every), ("@@+", re.S.value, ("fullmatch",)), ("@@b", 0, ("search",))]
    (tmp_path / "module.py").write_text("import re\nre.compile('|'.join(names))\n")
    with pytest.raises(AssertionError, match=r"module\.py:2: a pattern made at run time; add an example to RUN_TIME"):
        find_patterns(tmp_path)
