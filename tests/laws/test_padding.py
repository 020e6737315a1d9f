"""What is not there is not seen: noise in padded places, rows alone and in a batch, and nothing to see at all."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from regard.laws import padding
from regard.laws.case import Case
from regard.nn.core.mixer import MixerSpec
from tests.laws.examples import BOTH, DECODERS, ENCODERS, name_of

pytestmark = pytest.mark.numeric

ALONE = ENCODERS + DECODERS
sides = pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
pairs = pytest.mark.parametrize("case", BOTH, ids=name_of)


def on_sides(cases: Sequence[Case]) -> pytest.MarkDecorator:
    """Padding on one side and the other by turns, as a mixer has many cases; bodies and families meet both."""
    many = {c for c in cases if isinstance(c.part, MixerSpec) and " family " not in c.name}
    pairs = [(c, left) for i, c in enumerate(cases) for left in (False, True) if c not in many or left == bool(i % 2)]
    ids = [f"{c.name}-{'left' if left else 'right'}" for c, left in pairs]
    return pytest.mark.parametrize(("case", "left"), pairs, ids=ids)


@on_sides(ALONE)
def test_noise_in_padded_places_changes_nothing(case: Case, left: bool) -> None:
    padding.check_noise(case, left)


@on_sides([c for c in ALONE if c.part.can.length == "any"])
def test_a_row_alone_is_the_row_in_a_batch(case: Case, left: bool) -> None:
    padding.check_row_alone(case, left)


@pytest.mark.parametrize(
    ("case", "left"), [(c, bool(i % 2)) for i, c in enumerate(ALONE)], ids=lambda v: getattr(v, "name", v)
)
def test_nothing_to_see_gives_zeros_and_finite_gradients(case: Case, left: bool) -> None:
    padding.check_nothing_to_see(case, left)


@pairs
@sides
def test_noise_in_padded_memory_changes_nothing(case: Case, left: bool) -> None:
    padding.check_memory_noise(case, left)


@pairs
def test_a_pair_alone_is_the_pair_in_a_batch(case: Case) -> None:
    padding.check_pair_alone(case)


@pairs
def test_an_empty_source_is_ignored_and_gradients_are_finite(case: Case) -> None:
    padding.check_empty_source(case)
