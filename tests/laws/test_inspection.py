"""Looking changes nothing: with a tape every layer takes the plain path, without one the fused; both give one result."""

from __future__ import annotations

from itertools import cycle

import pytest

from regard.laws.case import LENGTH, Case
from regard.laws.inspection import PLACES, check_replacement, check_tape, run_with_gradients
from regard.nn.core.context import Tape
from regard.nn.core.coords import Coords
from tests.laws.examples import BOTH, DECODERS, ENCODERS

pytestmark = pytest.mark.numeric

CASES = ENCODERS + DECODERS + BOTH


@pytest.mark.parametrize(("case", "place"), list(zip(CASES, cycle(PLACES))), ids=lambda v: getattr(v, "name", v))
def test_looked_at_or_not(case: Case, place: str) -> None:
    check_tape(case, place)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_replacing_is_exact(case: Case) -> None:
    check_replacement(case)


def test_only_what_was_asked_for_takes_the_slow_path() -> None:
    tape = Tape("decoder.*.cross.weights")
    run_with_gradients(BOTH[0].net(), Coords.span(LENGTH), True, tape)
    assert sorted(tape.kept) == ["decoder.blocks.0.cross.weights", "decoder.blocks.1.cross.weights"]
    slow = {name for name, reason in tape.plans.items() if not reason.startswith("fused")}
    assert slow == {"decoder.blocks.0.cross", "decoder.blocks.1.cross"}
