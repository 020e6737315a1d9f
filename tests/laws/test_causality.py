"""Changing token t changes nothing before t. What a token sees, it does depend on."""

from __future__ import annotations

import pytest

from regard.laws import causality
from regard.laws.case import Case
from tests.laws.examples import BOTH, DECODERS, name_of

pytestmark = pytest.mark.numeric
decoders = pytest.mark.parametrize("case", DECODERS, ids=name_of)


@pytest.mark.parametrize("case", DECODERS + BOTH, ids=name_of)
def test_the_past_does_not_see_the_future(case: Case) -> None:
    causality.check_outputs(case)


@decoders
def test_no_gradient_flows_back_in_time(case: Case) -> None:
    causality.check_gradients(case)
