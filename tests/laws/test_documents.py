"""Documents packed in one row are documents in rows of their own."""

from __future__ import annotations

import pytest

from regard.laws import packing
from regard.laws.case import Case
from tests.laws.examples import BOTH, DECODERS, ENCODERS, STREAMING, name_of

pytestmark = pytest.mark.numeric


@pytest.mark.parametrize("case", [c for c in ENCODERS + DECODERS if c.part.can.packed], ids=name_of)
def test_packed_is_separate(case: Case) -> None:
    packing.check_separate(case)


@pytest.mark.parametrize("case", STREAMING, ids=name_of)
def test_packed_in_chunks(case: Case) -> None:
    packing.check_chunks(case)


@pytest.mark.parametrize("case", [c for c in BOTH if c.part.can.packed], ids=name_of)
def test_packed_pairs_are_separate(case: Case) -> None:
    packing.check_pairs(case)
