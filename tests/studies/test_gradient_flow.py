"""Gradients by distance: those of a recurrence vanish, those of attention do not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from regard.errors import SpecError
from regard.studies.gradient_flow import LAYERS, fit_factor
from regard.studies.gradient_flow import run as measure
from regard.studies.grid import Grid
from regard.studies.study_options import StudyOptions


def test_a_geometric_decay_is_found() -> None:
    assert fit_factor([1.0, *(3.0 * 0.8**k for k in range(1, 30))]) == pytest.approx(0.8)
    assert fit_factor([1.0, 0.0, 0.0]) == 0


def test_recurrent_gradients_vanish_and_those_of_attention_do_not(tmp_path: Path) -> None:
    found = measure(Grid(tmp_path), (), StudyOptions(seeds=2), n=32, width=16)
    assert list(found.found) == list(LAYERS)
    plain = found.plain()["layers"]
    mean = {name: sum(each["factor_per_step"]) / 2 for name, each in plain.items()}  # type: ignore[attr-defined]
    assert mean["RNN"] < 0.9
    assert mean["LSTM"] < 0.95
    assert mean["Transformer"] > 0.95
    assert "factor per step" in found.render()
    assert "By distance" in found.page()
    assert found.draw(tmp_path)


def test_beyond_a_window_there_is_no_gradient(tmp_path: Path) -> None:
    found = measure(Grid(tmp_path), (), StudyOptions(seeds=1), n=32, width=16, only=["window of 8"])
    sizes = torch.tensor(found.sizes("window of 8"))
    assert (sizes[17:] < 1e-9).all()  # two layers of a window of 8
    assert (sizes[:14] > 1e-9).all()


def test_a_convolution_reaches_as_far_as_its_kernels(tmp_path: Path) -> None:
    found = measure(Grid(tmp_path), (), StudyOptions(seeds=1), n=16, width=16, only=["ConvS2S"])
    sizes = found.sizes("ConvS2S")
    assert (sizes[:3] > 1e-9).all()  # two layers of three tokens
    assert (sizes[3:] < 1e-9).all()


def test_the_copy_memory_task_beside_it(tmp_path: Path) -> None:
    options = StudyOptions(seeds=1)
    found = measure(Grid(tmp_path), (), options, n=8, width=16, only=["LSTM", "ConvS2S"], delays=(2,), steps=3)
    assert found.recalled.keys() == {"LSTM", "ConvS2S"}
    assert all(0 <= share <= 1 for row in found.recalled.values() for share in row[2])
    assert "delay 2" in found.render()
    assert found.plain()["recalled"]["LSTM"].keys() == {"2"}  # type: ignore[index]


def test_what_it_refuses(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no layers 'GPT' in this study; there is RNN, GRU"):
        measure(Grid(tmp_path), (), StudyOptions(), only=["GPT"])
    with pytest.raises(SpecError, match="the study of gradients has no use for data; leave it out"):
        measure(Grid(tmp_path), (), StudyOptions(data=["book.txt"]))
