"""Chance as a pure function of its place."""

from __future__ import annotations

import numpy as np

from regard.data.example_rng import ExampleRng, Rng


def test_the_same_place_gives_the_same_bits_and_another_gives_others() -> None:
    places = [(seed, epoch, example) for seed in (0, 1) for epoch in (0, 1) for example in (0, 1, 7)]
    drawn = {place: tuple(ExampleRng(*place[:2]).of(place[2]).permutation(20).tolist()) for place in places}
    assert drawn == {p: tuple(ExampleRng(*p[:2]).of(p[2]).permutation(20).tolist()) for p in places}
    assert len(set(drawn.values())) == len(places)


def test_the_stream_is_the_one_it_always_was() -> None:
    """Numbers that a resumed run of any later version must draw again."""
    rng = Rng(1, 2, 3)
    assert [rng.integer(1000) for _ in range(4)] == [707, 169, 58, 172]


def test_draws_are_even() -> None:
    rng = Rng(5)
    assert abs(sum(rng.bernoulli(0.3) for _ in range(4000)) / 4000 - 0.3) < 0.03
    picked = rng.choice(np.array([3, 5, 9]), 3000)
    assert set(picked.tolist()) == {3, 5, 9}
    assert np.bincount(picked)[[3, 5, 9]].min() > 900
    assert sorted(rng.permutation(50).tolist()) == list(range(50))
    assert 0 <= rng.uniform(1000).min() < 0.01 < 0.99 < rng.uniform(1000).max() < 1
