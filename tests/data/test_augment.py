"""Pictures moved a little: what each change does, and that it depends on seed, epoch and place alone."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from regard.data.augment import Augment, draw

PIXELS = np.random.Generator(np.random.PCG64(0)).integers(1, 255, (50, 6, 7, 2), dtype=np.uint8)


def shifted(picture: np.ndarray, down: int, right: int) -> np.ndarray:  # type: ignore[type-arg]
    """Pixel by pixel, from the definition."""
    out = np.zeros_like(picture)
    for r in range(picture.shape[0]):
        for c in range(picture.shape[1]):
            if 0 <= r + down < picture.shape[0] and 0 <= c + right < picture.shape[1]:
                out[r, c] = picture[r + down, c + right]
    return out


def test_nothing_asked_nothing_changed() -> None:
    assert np.array_equal(Augment().change(PIXELS, draw(50, seed=1, epoch=0)), PIXELS)


def test_shifts_are_shifts_and_all_of_them_come() -> None:
    moved, seen = Augment(shift=1).change(PIXELS, draw(50, seed=1, epoch=0)), set()
    for before, after in zip(PIXELS, moved, strict=True):
        ways = [(d, r) for d in (-1, 0, 1) for r in (-1, 0, 1) if np.array_equal(shifted(before, d, r), after)]
        assert len(ways) == 1
        seen |= set(ways)
    assert len(seen) == 9


def test_half_are_mirrored() -> None:
    moved = Augment(flip=True).change(PIXELS, draw(50, seed=1, epoch=0))
    turned = [np.array_equal(after, before[:, ::-1]) for before, after in zip(PIXELS, moved, strict=True)]
    kept = [np.array_equal(after, before) for before, after in zip(PIXELS, moved, strict=True)]
    assert all(a != b for a, b in zip(turned, kept, strict=True))
    assert 15 < sum(turned) < 35


def test_a_hole_is_a_square_of_zeros() -> None:
    moved = Augment(hole=3).change(PIXELS.copy(), draw(50, seed=1, epoch=0))
    for before, after in zip(PIXELS, moved, strict=True):
        rows, columns = (np.flatnonzero((after == 0).all(2).any(axis)) for axis in (1, 0))
        assert 1 < len(rows) <= 3 and 1 < len(columns) <= 3
        hole = np.ix_(rows, columns)
        assert (after[hole] == 0).all()
        back = after.copy()
        back[hole] = before[hole]
        assert np.array_equal(back, before)


@given(st.integers(0, 2**32), st.integers(0, 100), st.permutations(range(8)))
def test_a_pure_function_of_seed_epoch_and_place(seed: int, epoch: int, order: list[int]) -> None:
    change, draws = Augment(shift=2, flip=True, hole=2), draw(8, seed=seed, epoch=epoch)
    whole = change.change(PIXELS[:8], draws)
    assert np.array_equal(change.change(PIXELS[order], draws[order]), whole[order])
    assert np.array_equal(draw(8, seed=seed, epoch=epoch), draws)
    assert not np.array_equal(draw(8, seed=seed, epoch=epoch + 1), draws)
    assert not np.array_equal(draw(8, seed=seed + 1, epoch=epoch), draws)
