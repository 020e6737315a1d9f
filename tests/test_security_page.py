"""The threat model: each promise of docs/security.md names tests that there are."""

from __future__ import annotations

import ast
import re

import pytest

from tests.verbs.calling import ROOT

TEXT = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
PROMISES = [line for line in TEXT.partition("## What is promised")[2].splitlines() if line.startswith("| ")]
ROWS = [line for line in PROMISES if line != "| promise | test |"]
NAMES = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)


def test_every_promise_names_a_test() -> None:
    assert len(ROWS) > 20
    for row in ROWS:
        promise, tests = row.strip("| ").split(" | ")
        assert promise and re.fullmatch(r"`tests/[\w/]+\.py::\w+`(?:, `tests/[\w/]+\.py::\w+`)*", tests), row


@pytest.mark.parametrize(("file", "name"), NAMES, ids=[name for _, name in NAMES])
def test_every_test_that_the_page_names_is_there(file: str, name: str) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_how_to_report_a_fault_is_said() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "open a private security advisory on the repository" in text and "(docs/security.md)" in text
