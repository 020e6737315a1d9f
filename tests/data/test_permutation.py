"""Every number once, in an order that depends on the seed alone."""

from __future__ import annotations

import numpy as np
import pytest

from regard.data.permutation import Permutation


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 100, 1023, 1024, 1025, 70_000])
def test_every_number_comes_once(n: int) -> None:
    whole = Permutation(n, 1, 2).take(0, n)
    assert sorted(whole.tolist()) == list(range(n))
    parts = [Permutation(n, 1, 2).take(i, i + 7) for i in range(0, n, 7)][:200]
    assert np.concatenate(parts).tolist() == whole.tolist()[: sum(map(len, parts))]


def test_the_order_is_that_of_the_seed_and_looks_random() -> None:
    n = 1 << 14
    one, again, other = (Permutation(n, *place).take(0, n) for place in ((1, 0), (1, 0), (1, 1)))
    assert (one == again).all()
    assert np.mean(one == other) < 0.01
    for order in (one, other):
        assert abs(np.corrcoef(order, np.arange(n))[0, 1]) < 0.05
        assert abs(np.corrcoef(order[1:], order[:-1])[0, 1]) < 0.05
        assert np.mean(np.abs(np.diff(order)) < n / 100) < 0.04  # neighbors are strangers
    assert one[:8].tolist() == Permutation(n, 1, 0).take(0, 8).tolist()


def test_the_largest_corpora_need_no_memory() -> None:
    order = Permutation(10**12, 3)
    assert len(set(order.take(10**11, 10**11 + 1000).tolist())) == 1000
