"""Rows that enter a running batch, of any mixer and position that says they may, run as alone."""

from __future__ import annotations

import pytest
import torch

from regard.errors import StateError
from regard.laws import joining
from regard.laws.case import Case
from regard.nn.core.coords import Coords
from regard.nn.mixers.full import CrossKeyValues
from tests.laws.examples import BOTH, STREAMING, name_of

pytestmark = pytest.mark.numeric

JOINING = [c for c in [*STREAMING, *BOTH] if c.part.can.stream and c.spec.decoder is not None and c.spec.decoder.joins]


@pytest.mark.parametrize("case", JOINING, ids=name_of)
def test_joined_rows_run_as_alone(case: Case) -> None:
    joining.check_join(case)


def test_columns_that_no_row_uses_are_dropped() -> None:
    at = Coords.lengths([2, 5], left=True)
    assert at.select(torch.tensor([0])).trimmed.pos.tolist() == [[0, 1]]
    assert at.trimmed is at


def test_coordinates_of_joined_rows() -> None:
    a, b = Coords.span(3), Coords.lengths([1, 2])
    assert a.join(b, 1, 2).pos.tolist() == [[0, 1, 2], [0, -1, -1], [0, 1, -1]]
    assert a.join(b, 1, 2).first == 0
    left = b.join(a, 2, 1, left=True)
    assert left.pos.tolist() == [[-1, 0, -1], [-1, 0, 1], [0, 1, 2]] and left.first is None
    assert b.join(a, 2, 1, left=True) is left
    assert a.join(Coords.span(3), 4, 2) is a


def test_a_state_that_has_read_nothing_cannot_join() -> None:
    with pytest.raises(StateError, match="read a token with each before they are joined"):
        CrossKeyValues().join(CrossKeyValues(torch.ones(1, 1, 1, 1), torch.ones(1, 1, 1, 1)))
