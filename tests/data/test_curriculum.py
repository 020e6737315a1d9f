"""A curriculum: a pure function of the batch, short examples first, all of them in the end."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.bucket import Buckets
from regard.data.curriculum import FREE, Curriculum, CurriculumOrder

LENGTHS = np.random.default_rng(0).integers(2, 42, (2000, 2))


def order(lengths: np.ndarray = LENGTHS, tokens: int = 400, seed: int = 1, **curriculum: int) -> CurriculumOrder:
    return CurriculumOrder(Curriculum(**curriculum), Buckets(lengths, tokens=tokens, seed=seed))


def test_a_batch_is_a_function_of_its_number() -> None:
    """However the batches before it were read, and whatever the epoch it is in."""
    one, other = order(start=5, steps=300), order(start=5, steps=300)
    batches = [batch for epoch in range(3) for batch in one.epoch(epoch)]
    assert len(one.epoch(0)) == len(one.epoch(7)) == len(Buckets(LENGTHS, tokens=400, seed=1).epoch(0))
    for number in (250, 3, 80):
        epoch, place = divmod(number, other.count)
        assert np.array_equal(other.epoch(epoch)[place], batches[number])
    assert not np.array_equal(order(seed=2, start=5).epoch(0)[3], batches[3])


def test_the_limit_grows_evenly() -> None:
    made = order(start=5, steps=100)
    assert [made.limit(number) for number in (0, 50, 100, 10**9)] == [5, 23, 41, 41]
    assert order(start=100, steps=10).limit(0) == 100


def test_short_examples_come_first() -> None:
    made, longest = order(start=5, steps=1000), LENGTHS.max(1)
    over = 0
    for number in range(400):
        batch = made.draw(number)
        over += longest[batch].max() > made.limit(number)
    assert abs(over / 400 - FREE) < 0.1, "about those that may have any length"
    late = [longest[made.draw(number)].mean() for number in range(1000, 1400)]
    early = [longest[made.draw(number)].mean() for number in range(100)]
    assert np.mean(early) < 0.6 * np.mean(late)


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=60), st.integers(1, 120), st.integers(1, 60), st.integers(0, 300)
)
def test_batches_fit(lengths: list[int], tokens: int, start: int, number: int) -> None:
    """Each has an example, none twice, of like lengths, and at most as many tokens as were asked for."""
    batch = order(np.array(lengths), tokens, start=start, steps=100).draw(number)
    chosen = np.maximum(np.array(lengths)[batch], 1)
    assert len(set(batch.tolist())) == len(batch) >= 1
    assert len(batch) == 1 or len(batch) * chosen.max() <= tokens


def test_everything_is_seen_in_the_end() -> None:
    made = order(np.arange(1, 61), 60, start=3, steps=50)
    seen = {int(i) for number in range(1500) for i in made.draw(number)}
    assert seen == set(range(60))


@pytest.mark.parametrize("settings", [{"start": 0}, {"steps": 0}])
def test_refused(settings: dict[str, int]) -> None:
    from regard.errors import SpecError

    with pytest.raises(SpecError, match=next(iter(settings))):
        Curriculum.parse(settings)
