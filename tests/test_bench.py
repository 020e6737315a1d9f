"""Measuring changes nothing that the tests or the README read, unless it is asked to."""

from __future__ import annotations

import argparse
import ast
import json
from pathlib import Path

import pytest
from bench import entry, results

BENCH = Path(results.__file__).parent


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    monkeypatch.setattr(results, "RECORDED", tmp_path / "results")
    monkeypatch.setattr(results, "MEASURED", tmp_path / "runs" / "results")
    for name, value in (("record", False), ("smoke", False), ("check", False), ("command", "")):
        monkeypatch.setattr(entry.Mode, name, value)
    return results.RECORDED, results.MEASURED


@pytest.mark.parametrize("record", [False, True])
def test_a_result_is_recorded_only_when_asked(places: tuple[Path, Path], record: bool) -> None:
    recorded, measured = places
    asked = entry.parse(argparse.ArgumentParser(), ["--record"] * record)
    assert asked.record == record
    path = results.write("speed", title="Speed", command="python -m bench", figures={"tokens/s": 3})
    assert path == (recorded if record else measured) / "speed.json"
    assert json.loads(path.read_text(encoding="utf-8"))["figures"] == {"tokens/s": 3}
    assert recorded.exists() == record


@pytest.mark.parametrize("path", sorted(BENCH.glob("*.py")), ids=lambda path: path.stem)
def test_every_bench_parses_by_the_common_entry(path: Path) -> None:
    """So that `--record`, `--smoke` and the rest are everywhere the same."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    own = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "parse_args"]
    assert not own or path.stem in {"entry", "smoke"}, "parse with bench.entry.parse"
    assert '"--tiny"' not in path.read_text(encoding="utf-8")


def test_runs_of_a_recorded_result_outlive_their_folders(places: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = {"model": "lstm", "seed": 1, "bleu": 13.0}, {"model": "gru", "seed": 1, "bleu": 20.0}
    assert results.merge_runs("race", tmp_path / "none", "model", "seed") == []
    entry.parse(argparse.ArgumentParser(), ["--record"])
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
