"""A mixer that names a plain twin equals it, weights taken over by name."""

from __future__ import annotations

import pytest

from regard.laws.case import LENGTH, Case
from regard.laws.twin import check_twin
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import MixerSpec
from tests.laws.examples import DECODERS, ENCODERS, name_of

pytestmark = pytest.mark.numeric


@pytest.mark.parametrize(
    "case", [c for c in DECODERS + ENCODERS if isinstance(c.part, MixerSpec) and c.part.twin() is not None], ids=name_of
)
@pytest.mark.parametrize(
    "at",
    [Coords.span(LENGTH), Coords.lengths([LENGTH, 5]), Coords.lengths([LENGTH, 5], left=True)],
    ids=["", "right", "left"],
)
def test_a_mixer_is_its_twin(case: Case, at: Coords) -> None:
    check_twin(case, at)
