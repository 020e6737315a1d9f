"""Measuring changes nothing that the tests or the README read, unless it is asked to."""

from __future__ import annotations

import argparse
import ast
import json
from pathlib import Path

import pytest
from bench import results

BENCH = Path(results.__file__).parent


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    monkeypatch.setattr(results, "RECORDED", tmp_path / "results")
    monkeypatch.setattr(results, "MEASURED", tmp_path / "runs" / "results")
    monkeypatch.setattr(results, "_recording", False)
    return results.RECORDED, results.MEASURED


@pytest.mark.parametrize("record", [False, True])
def test_a_result_is_recorded_only_when_asked(places: tuple[Path, Path], record: bool) -> None:
    recorded, measured = places
    asked = results.parse(argparse.ArgumentParser(), ["--record"] * record)
    assert asked.record == record
    path = results.write("speed", title="Speed", command="python -m bench", figures={"tokens/s": 3})
    assert path == (recorded if record else measured) / "speed.json"
    assert json.loads(path.read_text(encoding="utf-8"))["figures"] == {"tokens/s": 3}
    assert recorded.exists() == record


@pytest.mark.parametrize("path", sorted(BENCH.glob("*.py")), ids=lambda path: path.stem)
def test_every_bench_that_writes_has_the_flag(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    named = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "bench.results"
        for alias in node.names
    }
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    if "write" in named:
        assert "parse" in called, "parse the arguments with bench.results.parse, which adds --record"
    own = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "parse_args"]
    assert not own or path.stem in {"results", "readme", "library", "packages"}


def test_runs_of_a_recorded_result_outlive_their_folders(places: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = {"model": "lstm", "seed": 1, "bleu": 13.0}, {"model": "gru", "seed": 1, "bleu": 20.0}
    assert results.merge_runs("race", tmp_path / "none", "model", "seed") == []
    results.parse(argparse.ArgumentParser(), ["--record"])
    results.write("race", title="Race", command="python -m bench.race", figures={}, runs=[first, second])
    made = tmp_path / "made"
    made.mkdir()
    again, another = first | {"bleu": 14.0}, first | {"seed": 2}
    for row in (again, another):
        (made / f"{row['model']}-{row['seed']}.json").write_text(json.dumps(row), encoding="utf-8")
    assert results.merge_runs("race", made, "model", "seed") == [second, again, another]


def test_a_run_is_measured_once(tmp_path: Path) -> None:
    calls: list[int] = []

    def measure() -> dict[str, float]:
        calls.append(1)
        return {"seed": 1, "exact": 99.5}

    kept = tmp_path / "one.json"
    assert results.keep_run(kept, measure) == results.keep_run(kept, measure) == {"seed": 1, "exact": 99.5}
    assert len(calls) == 1
