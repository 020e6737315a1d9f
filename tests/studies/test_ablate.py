"""Ablations: each takes out one part, and says why that part is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.errors import SpecError
from regard.studies.ablate import ABLATIONS, list_ablations
from regard.studies.ablate import run as ablate
from regard.studies.grid import Grid
from regard.studies.preparation import Preparation, cost_of, model_of
from regard.studies.study_options import StudyOptions
from regard.training.request import TrainRequest
from tests.training.small import COPY, TINY

WHOLE = {**COPY, **TINY, "model.width": 32, "model.heads": 4, "model.dropout": 0.1, "train.label_smoothing": 0.1}


def test_every_ablation_changes_the_model_or_the_training() -> None:
    entries, notes = list_ablations("copy", StudyOptions(set=WHOLE))
    assert [entry.name for entry in entries[1:]] == [each.name for each in ABLATIONS]
    assert len(notes) == len(ABLATIONS)
    preparation = Preparation()
    made = {}
    for entry in entries:
        recipe, data = preparation.complete(TrainRequest(entry.recipe, set=entry.set))
        spec = model_of(recipe, data)
        made[entry.name] = (spec, recipe.train)
        cost_of(spec, 4)  # it can be built
    assert len({(spec.json(), train.json()) for spec, train in made.values()}) == len(made)
    assert type(made["no residual"][0].decoder.wiring).__name__ == "NormOnly"
    assert made["no residual"][0].decoder.wiring.dropout == 0.1
    assert made["no √d_k"][0].encoder.block.mix.scale == 1.0
    assert made["d_k / 2"][0].decoder.block.cross.head_width == 4
    assert made["no feed-forward"][0].decoder.block.feed is None
    assert made["no positions"][0].embed.position is None
    assert made["no dropout"][0].embed.dropout == 0


def test_what_is_not_there_is_said() -> None:
    _, notes = list_ablations("copy", StudyOptions(set={**WHOLE, "model.dropout": 0.0}))
    assert "no dropout: does not apply to this recipe" in notes


def test_an_ablation_from_end_to_end(tmp_path: Path) -> None:
    small = {**WHOLE, "train.steps": 4, "train.validate_every": 4, "train.log_every": 2}
    found = ablate(Grid(tmp_path), ["copy"], StudyOptions(set=small, seeds=2), only=["no residual", "no smoothing"])
    assert [sample.name for sample in found.samples] == ["whole", "no residual", "no smoothing"]
    assert found.title == "ablate"
    assert any(note.startswith("no residual: gradients reach every layer") for note in found.notes)
    assert all(verdict.word == "preliminary" for verdict in found.verdicts)


def test_unknown_ablations_are_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no ablation 'no hair'; there is no residual, no norm"):
        ablate(Grid(tmp_path), ["copy"], StudyOptions(set=WHOLE), only=["no hair"])
    with pytest.raises(SpecError, match="an ablation is of one recipe, got 2"):
        ablate(Grid(tmp_path), ["copy", "dates"], StudyOptions())
