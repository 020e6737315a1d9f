"""The noise of BART: rates as asked for, nothing lost that should stay, and a function of the stream alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.denoising import (
    Noise,
    delete_tokens,
    draw_poisson,
    infill,
    mask_tokens,
    permute_sentences,
    rotate,
)
from regard.data.example_rng import ExampleRng, Rng
from regard.errors import SpecError

MASK = -1
lengths, seeds = st.integers(1, 120), st.integers(0, 10_000)


def test_poisson() -> None:
    drawn = draw_poisson(3.0, 200_000, Rng(1))
    assert drawn.mean() == pytest.approx(3.0, abs=0.02)
    assert drawn.var() == pytest.approx(3.0, abs=0.05)
    for k in range(10):
        assert (drawn == k).mean() == pytest.approx(math.exp(-3) * 3**k / math.factorial(k), abs=0.003)


def test_infilling_takes_the_share_in_spans_of_the_mean_length() -> None:
    taken = masks = total = empty = 0
    for seed in range(400):
        out = infill(np.arange(200), MASK, 0.3, 3.0, Rng(seed))
        kept = out[out != MASK]
        assert (np.diff(kept) > 0).all(), "the order stays"
        taken, masks, total = taken + 200 - len(kept), masks + int((out == MASK).sum()), total + 200
        sides = [(int(out[i - 1]), int(out[i + 1])) for i in np.flatnonzero(out == MASK) if 0 < i < len(out) - 1]
        empty += sum(after - before == 1 for before, after in sides)
    assert taken / total == pytest.approx(0.3, abs=1e-9)
    assert taken / masks == pytest.approx(3.0, abs=0.1)
    assert empty / masks == pytest.approx(math.exp(-3), abs=0.012)


@given(lengths, st.floats(0, 1), st.floats(0.01, 30), seeds)
def test_infilling_never_makes_a_text_longer(n: int, share: float, mean: float, seed: int) -> None:
    out = infill(np.arange(n), MASK, share, mean, Rng(seed))
    assert len(out) <= n
    kept = out[out != MASK]
    assert (np.diff(kept) > 0).all()
    assert not ((out[1:] == MASK) & (out[:-1] == MASK)).any(), "spans do not touch"


@given(lengths, st.floats(0, 1), seeds)
def test_deletion_and_masking_take_the_share(n: int, share: float, seed: int) -> None:
    ids, count = np.arange(n), round(n * share)
    shorter, masked = delete_tokens(ids, share, Rng(seed)), mask_tokens(ids, MASK, share, Rng(seed))
    assert len(shorter) == n - count and (np.diff(shorter) > 0).all()
    assert (masked == MASK).sum() == count and ((masked == ids) | (masked == MASK)).all()
    assert ids.tolist() == list(range(n)), "the text itself stays as it is"


@given(lengths, seeds)
def test_rotation(n: int, seed: int) -> None:
    out = rotate(np.arange(n), Rng(seed))
    assert ((np.diff(out) - 1) % n == 0).all() and sorted(out.tolist()) == list(range(n))


def test_rotation_begins_anywhere() -> None:
    assert {int(rotate(np.arange(5), Rng(seed))[0]) for seed in range(60)} == set(range(5))


def test_sentences_stay_whole_and_come_in_any_order() -> None:
    ids, ends = np.array([5, 6, 0, 7, 0, 8]), np.array([0, 0, 1, 0, 1, 0], bool)
    found = {tuple(permute_sentences(ids, ends, Rng(seed)).tolist()) for seed in range(80)}
    parts = [(5, 6, 0), (7, 0), (8,)]
    assert found == {a + b + c for a in parts for b in parts for c in parts if len({a, b, c}) == 3}


def test_all_together_are_a_function_of_seed_epoch_and_example() -> None:
    noise = Noise(delete=0.1, mask=0.1, rotate=0.5)
    ids, ends = np.arange(50), np.arange(50) % 9 == 8

    def made(seed: int, epoch: int, example: int) -> tuple[int, ...]:
        return tuple(noise.apply(ids, ends, MASK, ExampleRng(seed, epoch).of(example)).tolist())

    assert made(1, 2, 3) == made(1, 2, 3)
    assert len({made(a, b, c) for a in (1, 2) for b in (0, 1) for c in (0, 1)}) == 8


def test_the_share_of_texts_that_are_permuted_and_rotated() -> None:
    noise, ids, ends = Noise(permute=0.25, infill=0), np.arange(40), np.arange(40) % 4 == 3
    changed = [noise.apply(ids, ends, MASK, Rng(seed)).tolist() != ids.tolist() for seed in range(2000)]
    assert np.mean(changed) == pytest.approx(0.25, abs=0.03)
    noise = Noise(permute=0, infill=0, rotate=0.5)
    changed = [noise.apply(ids, ends, MASK, Rng(seed)).tolist() != ids.tolist() for seed in range(2000)]
    assert np.mean(changed) == pytest.approx(0.5 * 39 / 40, abs=0.03)


def test_refusals() -> None:
    with pytest.raises(SpecError, match="a text without noise teaches nothing; set permute, infill"):
        Noise(permute=0, infill=0)
