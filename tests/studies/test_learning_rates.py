"""The best learning rate by width: one table for both parametrizations."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from regard.errors import SpecError
from regard.studies.grid import Grid
from regard.studies.learning_rates import MUP, STANDARD, RatesResult
from regard.studies.learning_rates import run as measure
from regard.studies.study_options import StudyOptions

SMALL = {
    "model.width": 16, "model.depth": 1, "model.heads": 2, "model.hidden": 32, "data.context": 8, "train.batch_tokens": 64,
    "train.schedule": {"kind": "constant", "lr": 3e-3}, "train.steps": 2, "train.log_every": 2, "train.validate_every": 2,
}  # fmt: skip


def test_from_end_to_end(tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text("the cat sat on the mat and looked at the dog. " * 20)
    said: list[str] = []
    options = StudyOptions(data=[str(book)], set=SMALL)
    found = measure(Grid(tmp_path / "out", say=said.append), ["gpt"], options, widths=(8, 16), count=3)
    assert said[0].startswith("3 rates at 2 widths, twice, 12 cells: about ")
    assert list(found.losses) == [(STANDARD, 8), (STANDARD, 16), (MUP, 8), (MUP, 16)]
    assert found.losses[STANDARD, 8] == found.losses[MUP, 8]  # at its base width, muP is the standard model
    assert found.losses[STANDARD, 16] != found.losses[MUP, 16]
    assert json.loads(json.dumps(found.plain()))["shift"].keys() == {STANDARD, MUP}
    assert "muP: the best rate of width 16 is" in found.render()
    assert found.draw(tmp_path)


def test_a_rate_that_diverges_is_not_the_best() -> None:
    losses = {(way, w): {1.0: 2.0, 2.0: math.inf} for way in (STANDARD, MUP) for w in (8, 16)}
    found = RatesResult(losses | {(STANDARD, 16): {1.0: math.inf, 2.0: 1.0}})
    assert (found.shift(STANDARD), found.shift(MUP)) == (2.0, 1.0)
    assert "–" in found.render()


def test_what_it_refuses(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="needs two widths and three rates or more, got 1 and 7"):
        measure(Grid(tmp_path), ["gpt"], StudyOptions(), widths=(8, 8))
    with pytest.raises(SpecError, match="the study of rates is of one recipe, got 0"):
        measure(Grid(tmp_path), [], StudyOptions())
