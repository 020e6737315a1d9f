"""Properties of layers: figures that are known, and one cell for each property and seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.errors import SpecError, UnknownName
from regard.studies.grid import Grid
from regard.studies.layer_properties import PROPERTIES
from regard.studies.layer_properties import run as measure
from regard.studies.study_options import StudyOptions

pytestmark = pytest.mark.numeric


def test_every_property_is_measured_and_the_known_ones_are_right(tmp_path: Path) -> None:
    found = measure(Grid(tmp_path), (), StudyOptions(seeds=1))
    figures = {name: found.figures(name) for name in PROPERTIES}
    assert figures["variance of scores"]["d_k 64"] == pytest.approx(64, rel=0.1)
    assert figures["order of tokens"]["without positions"] < 1e-5
    assert figures["scores by distance"]["rotary"] < 1e-9
    assert figures["shifted sinusoids"]["sinusoidal"] < 1e-6
    assert figures["memory of segments"]["without"] == 0
    assert figures["reach of a window"] == {"1 layer": 4, "2 layers": 8, "4 layers": 16}
    assert figures["shared keys"] == {"8 key heads": 128, "2 key heads": 32, "1 key heads": 16}
    assert figures["operations"]["LSTM cheaper above n / d"] == pytest.approx(2.0, abs=0.01)  # 8d² + 4nd against 16d²
    assert figures["paths"]["plain, 64 tokens"] == 1
    assert figures["paths"]["lstm, 64 tokens"] == 63
    assert figures["averaged heads"]["average of the heads"] > figures["averaged heads"]["single heads"]
    assert len(list((tmp_path / "cells").iterdir())) == len(PROPERTIES)
    assert "| paths " in found.render()
    assert "Properties" in found.page()


def test_what_it_refuses(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="no property 'path'; did you mean 'paths'"):
        measure(Grid(tmp_path), (), StudyOptions(), only=["path"])
    with pytest.raises(SpecError, match="takes no recipes, got copy"):
        measure(Grid(tmp_path), ["copy"], StudyOptions())
