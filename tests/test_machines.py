"""The runs that stand for other machines, and how their output is read."""

from __future__ import annotations

import re
import subprocess
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import machines
from tests.conftest import pytest_collection_modifyitems

FEW = "tests/test_errors.py"


def test_failures_are_counted_and_named() -> None:
    report = (
        "<testsuites><testsuite>"
        "<testcase classname='tests.a' name='test_x[1 - 2]'><failure message='assert 1.0 == 2.0'/></testcase>"
        "<testcase classname='tests.a' name='test_y'/>"
        "<testcase classname='tests.a' name='test_z'><skipped/></testcase>"
        "<testcase classname='tests.b' name='test_y'><error/></testcase>"
        "</testsuite></testsuites>"
    )
    failures = ("tests.a::test_x[1 - 2]", "tests.b::test_y")
    assert machines.summarize("avx2", report, 3.0) == machines.Outcome("avx2", 1, 2, 3.0, failures)


def test_a_variation_runs_beside_company_and_ends_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machines, "RESULT", tmp_path / "runs" / "machines.json")
    started = []
    begin = subprocess.Popen

    def remember(*words: object, **how: object) -> object:
        started.append(begin(*words, **how))  # type: ignore[call-overload]
        return started[-1]

    monkeypatch.setattr(machines.subprocess, "Popen", remember)  # type: ignore[attr-defined]
    monkeypatch.setattr(machines.tempfile, "gettempdir", lambda: str(tmp_path))  # type: ignore[attr-defined]
    assert machines.main(["shuffled", "--workers", "1", "--", FEW]) == 0
    assert len(started) == 3, "a busy one, one that walks, and pytest"
    assert all(process.poll() is not None for process in started)
    assert re.search(r"^\| shuffled +\| +\d+ \| +0 \|", capsys.readouterr().out, flags=re.M)
    assert (tmp_path / "runs" / "machines.json").exists()


def test_the_order_is_random_and_the_same_for_a_seed() -> None:
    def shuffle(seed: int | None) -> list[tuple[str, int]]:
        items = [SimpleNamespace(path=path, number=i) for path in "abcdef" for i in range(5)]
        pytest_collection_modifyitems(SimpleNamespace(getoption=lambda _: seed), items)  # type: ignore[arg-type]
        return [(item.path, item.number) for item in items]

    assert shuffle(1) == shuffle(1) != shuffle(2)
    assert sorted(shuffle(1)) == shuffle(None)
    modules = [path for path, _ in shuffle(1)]
    assert len(list(groupby(modules))) == 6, "a module stays together, so that what it sets up is set up once"


def test_an_unknown_variation(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        machines.main(["avx3"])
    assert "no variation 'avx3'; there is default, avx2" in capsys.readouterr().err


def test_a_variation_that_cannot_run_here_is_no_success(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machines, "RESULT", tmp_path / "machines.json")
    monkeypatch.setitem(machines.VARIATIONS, "python-2.0", machines.Variation(python="2.0"))
    assert machines.main(["python-2.0", "--", FEW]) == 1
    assert re.search(
        r"^python-2.0: not run: there is no .*/\.venv-2\.0/bin/python$", capsys.readouterr().out, flags=re.M
    )


def test_a_variation_has_its_umask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    test = tmp_path / "test_umask.py"
    test.write_text("import os\n\ndef test_it():\n    assert os.umask(0) == 0o027\n")
    monkeypatch.setitem(machines.VARIATIONS, "umask-027", machines.Variation((), umask=0o027))
    found = machines.run("umask-027", 1, [str(test), f"--rootdir={tmp_path}"])
    assert (found.passed, found.failed) == (1, 0)


def test_every_path_of_the_variations_is_there() -> None:
    words = [*machines.TORCHLESS, *(word for each in machines.VARIATIONS.values() for word in each.options)]
    paths = {found[1] for word in words if (found := re.match(r"(?:--\w+=)?(tests/[^:]+)", word))}
    assert not [path for path in paths if not (machines.ROOT / path).exists()]
