"""Position codes on longer texts than in training."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.errors import SpecError
from regard.studies.grid import Grid
from regard.studies.length_generalization import ATTENDED, EMBEDDED, list_positions, list_tests
from regard.studies.length_generalization import run as measure
from regard.studies.preparation import Preparation, cost_of, model_of
from regard.studies.study_options import StudyOptions
from regard.studies.train_cell import read_test
from regard.training.request import TrainRequest
from tests.training.small import COPY, TINY

SMALL = {**COPY, **TINY, "train.steps": 4, "train.validate_every": 4, "train.log_every": 2, "data.generate.symbols": 3}
SMALL |= {"data.generate.max_length": 4, "data.generate.valid": 8}


def test_every_position_code_builds_a_model() -> None:
    preparation = Preparation()
    entries = list_positions("copy", SMALL)
    assert [entry.name for entry in entries] == [*EMBEDDED, *ATTENDED]
    specs = {}
    for entry in entries:
        recipe, data = preparation.complete(TrainRequest(entry.recipe, set=entry.set))
        specs[entry.name] = model_of(recipe, data)
        cost_of(specs[entry.name], 4)
    assert len({spec.json() for spec in specs.values()}) == len(entries)
    assert specs["rotary"].embed.position is None
    assert type(specs["ALiBi"].decoder.position).__name__ == "ALiBi"


def test_test_sets_have_the_lengths_they_say() -> None:
    recipe, data = Preparation().complete(TrainRequest("copy", set={**SMALL, "data.generate.valid": 200}))
    tests = list_tests(dict(recipe.data["generate"]), 4)
    assert list(tests) == ["test", "1 to 4", "5 to 6", "7 to 8", "9 to 12", "13 to 16"]
    for name, (low, high) in {"test": (5, 16), "1 to 4": (1, 4), "9 to 12": (9, 12), "13 to 16": (13, 16)}.items():
        lengths = {len(text) for part in read_test(recipe.plain(), data.task, tests[name]) for text in part.source}  # type: ignore[attr-defined]
        assert lengths
        assert min(lengths) >= low
        assert max(lengths) <= high


def test_from_end_to_end(tmp_path: Path) -> None:
    found = measure(Grid(tmp_path), (), StudyOptions(set=SMALL, seeds=2), n=4, only=["rotary"])
    plain = found.plain()
    assert plain["trained_up_to"] == 4
    assert list(plain["by_length"]["rotary"]) == [  # type: ignore[index]
        "1 to 4", "5 to 6", "7 to 8", "9 to 12", "13 to 16", "5 to 16", "13 to 16, scaled linear", "13 to 16, scaled yarn",
    ]  # fmt: skip
    assert plain["by_length"]["sinusoidal"]["13 to 16, scaled yarn"] == []  # type: ignore[index]
    assert "| rotary " in found.render()
    assert "13 to 16" in found.page()
    assert found.draw(tmp_path)


def test_what_it_needs() -> None:
    with pytest.raises(
        SpecError, match="no position code 'rope' in this study; there is sinusoidal, learned, none, rotary"
    ):
        list_positions("copy", {}, ["rope"])
