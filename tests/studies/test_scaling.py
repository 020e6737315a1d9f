"""A ladder from end to end: the prediction is written before its run, and stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regard.errors import SpecError
from regard.studies.grid import Grid
from regard.studies.scaling import PREDICTION
from regard.studies.scaling import run as scale
from regard.studies.study_options import StudyOptions

SMALL = {
    "model.width": 16, "model.depth": 1, "model.heads": 2, "model.hidden": 32, "data.context": 8, "train.batch_tokens": 64,
    "train.schedule": {"kind": "constant", "lr": 3e-3}, "train.log_every": 2, "train.validate_every": 100,
}  # fmt: skip


def test_a_ladder_from_end_to_end(tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text("the cat sat on the mat and looked at the dog. " * 40)
    ladder = {"widths": (8, 16, 24, 32), "steps": (4, 8), "held_out": (56, 40), "flops": (1.5e7,)}
    said: list[str] = []
    grid = Grid(tmp_path / "out", say=said.append)
    found = scale(grid, ["gpt"], StudyOptions(data=[str(book)], set=SMALL), **ladder)  # type: ignore[arg-type]
    assert said[0].startswith("12 sizes and one held out, 13 cells: about ")
    written = json.loads((tmp_path / "out" / PREDICTION).read_text())
    assert written == {"width 56, 40 steps": dict(found.prediction)}
    plain = found.plain()
    assert len(plain["runs"]) == 12  # type: ignore[arg-type]
    assert set(plain["laws"]) == {"both", "parameters"}  # type: ignore[call-overload]
    assert plain["notes"] == [
        "no law by tokens alone: a law by tokens has 3 coefficients and needs at least 4 runs, got 2"
    ]
    equal = [rung for rung in found.points if rung.flops]
    assert [rung.width for rung in equal] == [8, 16, 24, 32]
    assert equal[0].steps > equal[-1].steps
    assert found.isoflops is not None
    assert plain["held_out"]["miss"] == pytest.approx(found.prediction["loss"] / found.loss - 1)  # type: ignore[index]
    assert "the prediction missed by" in found.render()
    assert "Prediction" in found.page()
    assert found.draw(tmp_path)


def test_the_held_out_run_is_larger(tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text("the cat sat on the mat. " * 40)
    with pytest.raises(SpecError, match="at least 4 times the FLOPs of the largest run of the ladder, got"):
        scale(
            Grid(tmp_path),
            ["gpt"],
            StudyOptions(data=[str(book)], set=SMALL),
            widths=(8, 16),
            steps=(4, 8),
            held_out=(16, 9),
        )
    short = StudyOptions(data=[str(book)], set=SMALL, minutes=1e-6)
    with pytest.raises(
        SpecError, match=r"would take about .* minutes are given; lower the widths or steps, or give --minutes"
    ):
        scale(Grid(tmp_path), ["gpt"], short, widths=(8, 16), steps=(4, 8), held_out=(32, 16))
    with pytest.raises(SpecError, match="a ladder is of one recipe, got 2"):
        scale(Grid(tmp_path), ["gpt", "copy"], StudyOptions())
