"""Shares of corpora: T5's ways to mix."""

from __future__ import annotations

import pytest

from regard.data.mixture import mixture_shares


def test_the_ways_to_mix() -> None:
    sizes, plain = [1000, 10], [1.0, 1.0]
    assert mixture_shares(sizes, plain) == (1000, 10)
    assert mixture_shares(sizes, [1.0, 3.0]) == (1000, 30)
    assert mixture_shares(sizes, plain, limit=100) == (100, 10)
    assert mixture_shares(sizes, plain, temperature=2.0) == pytest.approx((1000**0.5, 10**0.5))
    assert mixture_shares(sizes, [1.0, 2.0], limit=160, temperature=2.0) == pytest.approx((160**0.5, 2 * 10**0.5))
    one, other = mixture_shares(sizes, plain, temperature=1e9)
    assert one == pytest.approx(other)
