"""Batches: within the budget, nothing lost, little padding, and an order that depends on seed and epoch alone."""

from __future__ import annotations

import gzip
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from regard.data import bucket
from regard.data.bucket import Buckets, padding_shares
from regard.errors import DataError, SpecError

BPE = Path(__file__).resolve().parents[3] / "shared/data/multi30k/bpe_en_de"

SEEDS = st.integers(0, 2**70)
EPOCHS = st.integers(0, 5)


@st.composite
def lengths(draw: st.DrawFn) -> NDArray[np.int64]:
    n, k = draw(st.integers(1, 40)), draw(st.integers(1, 3))
    return np.array(draw(st.lists(st.lists(st.integers(0, 90), min_size=k, max_size=k), min_size=n, max_size=n)))


def like_captions(n: int) -> NDArray[np.int64]:
    """Lengths on two sides that go together, as in translation."""
    rng = np.random.default_rng(0)
    source = rng.poisson(14, n) + 2
    return np.stack([source, np.maximum(1, source + rng.integers(-4, 5, n))], axis=1)


def same(one: list[NDArray[np.int64]], other: list[NDArray[np.int64]]) -> bool:
    return len(one) == len(other) and all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def mates_kept(one: list[NDArray[np.int64]], other: list[NDArray[np.int64]]) -> float:
    """The part of pairs of examples in one batch that are in one batch of the other epoch, too."""
    place = {int(i): b for b, batch in enumerate(other) for i in batch}
    both = sum(c * (c - 1) for batch in one for c in Counter(place[int(i)] for i in batch).values())
    return both / sum(len(batch) * (len(batch) - 1) for batch in one)


@given(lengths(), st.integers(1, 200), st.none() | st.integers(1, 9), SEEDS, EPOCHS)
def test_every_example_once_and_no_batch_over_budget(
    table: NDArray[np.int64], tokens: int, max_rows: int | None, seed: int, epoch: int
) -> None:
    batches = Buckets(table, tokens=tokens, seed=seed, max_rows=max_rows).epoch(epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(table)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * table[batch].max() <= tokens
        assert 1 <= len(batch) <= (max_rows or len(table))


@given(lengths(), SEEDS, EPOCHS, EPOCHS)
def test_an_epoch_does_not_depend_on_what_was_asked_before(
    table: NDArray[np.int64], seed: int, before: int, epoch: int
) -> None:
    buckets = Buckets(table, tokens=100, seed=seed)
    buckets.epoch(before)
    assert same(buckets.epoch(epoch), Buckets(table.copy(), tokens=100, seed=seed).epoch(epoch))


def test_the_order_is_fixed_for_good() -> None:
    """A run must resume on another version of numpy or of Regard: change this order and old runs no longer can."""
    table = np.array([[3, 4], [9, 2], [5, 5], [3, 3], [40, 41], [8, 8], [2, 7], [5, 4]])
    buckets = Buckets(table, tokens=20, seed=7, groups=[0, 0, 0, 0, 0, 1, 1, 1], shares=[1, 1])
    assert [batch.tolist() for batch in buckets.epoch(3)] == [[5, 6], [4], [1, 5], [2, 7, 0]]


def test_epochs_and_seeds_differ_in_batches_and_in_their_order() -> None:
    table = like_captions(3000)
    first, second = (Buckets(table, tokens=1024, seed=1).epoch(e) for e in (0, 1))
    other = Buckets(table, tokens=1024, seed=2).epoch(0)
    for one, two in ((first, second), (first, other)):
        assert mates_kept(one, two) < 0.5
        assert not {tuple(sorted(batch)) for batch in one} & {tuple(sorted(batch)) for batch in two}
    sizes = [int(table[batch].max()) for batch in first]
    assert sizes != sorted(sizes) and sizes != sorted(sizes, reverse=True)


def test_long_examples_of_distinct_lengths_mix_too() -> None:
    table = np.arange(200, 1400)
    one, two = (Buckets(table, tokens=4096, seed=0).epoch(e) for e in (0, 1))
    assert mates_kept(one, two) < 0.5
    assert padding_shares(table, one)[0] < 0.05
    assert all(len(batch) * table[batch].max() <= 4096 for batch in one + two)


def test_a_corpus_that_fits_is_one_batch() -> None:
    assert [len(batch) for batch in Buckets([5, 3, 8, 1], tokens=32, seed=0).epoch(4)] == [4]


def test_an_example_over_budget_is_a_batch_of_its_own() -> None:
    batches = Buckets([3, 100, 3], tokens=10, seed=0).epoch(0)
    assert sorted(batch.tolist() for batch in batches)[-1] == [1]
    assert sorted(map(len, batches)) == [1, 2]


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=3),
    st.lists(st.floats(0.1, 10), min_size=3, max_size=3),
    SEEDS,
    st.integers(1, 6),
)
def test_groups_fill_their_shares_and_their_examples_take_turns(
    sizes: list[int], shares: list[float], seed: int, epochs: int
) -> None:
    groups = np.repeat(np.arange(len(sizes)), sizes)
    shares = shares[: len(sizes)]
    buckets = Buckets(np.ones(len(groups), int), tokens=4, seed=seed, groups=groups, shares=shares)
    counts = np.zeros(len(groups), int)
    for epoch in range(epochs):
        drawn = np.concatenate(buckets.epoch(epoch))
        for group, share in enumerate(shares):
            wanted = share / sum(shares) * len(groups)
            assert abs((groups[drawn] == group).sum() - wanted) <= 0.5 or wanted < 1
        counts += np.bincount(drawn, minlength=len(groups))
    for group in range(len(sizes)):
        assert np.ptp(counts[groups == group]) <= 1
        assert counts[groups == group].sum() >= epochs  # nobody is left out


@given(st.lists(st.integers(1, 30), min_size=1, max_size=4), SEEDS, EPOCHS)
def test_shares_like_sizes_give_every_example_once(sizes: list[int], seed: int, epoch: int) -> None:
    groups = np.repeat(np.arange(len(sizes)), sizes)
    batches = Buckets(np.arange(len(groups)), tokens=50, seed=seed, groups=groups, shares=sizes).epoch(epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(groups)))


def test_groups_meet_in_batches() -> None:
    table, groups = np.full(2000, 10), np.repeat([0, 1], [200, 1800])
    for batch in Buckets(table, tokens=1000, seed=0, groups=groups, shares=[1, 1]).epoch(0):
        assert 0.25 < groups[batch].mean() < 0.75


def test_padding_counts_each_side() -> None:
    table = np.array([[2, 4], [4, 4], [1, 1]])
    assert padding_shares(table, [np.array([0, 1]), np.array([2])]) == pytest.approx((2 / 9, 0))


@pytest.mark.skipif(not BPE.exists(), reason="needs shared/data/multi30k/bpe_en_de beside the repository")
def test_little_padding_on_both_sides_of_multi30k() -> None:
    def column(side: str) -> list[int]:
        with gzip.open(BPE / f"train.{side}.gz", "rb") as file:
            return [len(line.split()) + 1 for line in file]

    table = np.stack([column("en"), column("de")], axis=1)
    buckets = Buckets(table, tokens=4096, seed=0)
    epochs = [buckets.epoch(e) for e in range(4)]
    for batches in epochs:
        assert max(padding_shares(table, batches)) < 0.05
        assert len(batches) < 1.05 * table.max(axis=1).sum() / 4096  # batches are full
    kept = [mates_kept(one, two) for one, two in pairwise(epochs)]
    assert max(kept) < 0.5


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (np.zeros((0,), int), r"lengths should be whole numbers of shape \(N,\) or \(N, k\), got int64 \(0,\)"),
        (np.zeros((2, 0), int), r"got int64 \(2, 0\)"),
        (np.zeros((1, 1, 1), int), r"got int64 \(1, 1, 1\)"),
        (np.ones(3), r"got float64 \(3,\)"),
        ([[1, 2], [3, -4]], "a length cannot be negative, example 1 has -4"),
    ],
)
def test_lengths_that_are_none_are_refused(table: NDArray[np.int64], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Buckets(table, tokens=10, seed=0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tokens": 0}, "tokens should be at least 1, got 0"),
        ({"max_rows": 0}, "max_rows should be at least 1, got 0"),
        ({"seed": -1}, "seed should be at least 0, got -1"),
        ({"groups": [0, 1, 1], "shares": [1]}, r"one positive number for each of 2 groups, got \[1\]"),
        ({"groups": [0, 1, 1], "shares": [1, 0]}, r"got \[1, 0\]"),
        ({"groups": [0, 1, 1], "shares": [1, float("nan")]}, r"got \[1, nan\]"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Buckets([1, 2, 3], **{"tokens": 10, "seed": 0, **settings})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([0, 1], r"groups should be 3 numbers from 0, one per example, got int64 \(2,\)"),
        ([0, 0, -1], "groups should be 3 numbers from 0"),
        ([0.0, 0.0, 1.0], "got float64"),
        ([0, 2, 2], "group 1 has no examples; groups are counted from 0 without gaps"),
    ],
)
def test_groups_that_do_not_fit_are_refused(groups: list[int], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Buckets([1, 2, 3], tokens=10, seed=0, groups=groups)


def test_a_large_corpus_is_sorted_pool_by_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every example once, within the budget; another order in every epoch, and the same one again after a resume."""
    monkeypatch.setattr(bucket, "POOL", 64)
    lengths = np.random.default_rng(1).integers(1, 40, 1000)
    order = Buckets(lengths, tokens=200, seed=5)
    one, two = order.epoch(0), order.epoch(1)
    assert sorted(np.concatenate(one[:]).tolist()) == list(range(1000))
    assert all(len(batch) * lengths[batch].max() <= 200 for batch in one)
    assert [batch.tolist() for batch in one] != [batch.tolist() for batch in two]
    again = Buckets(lengths, tokens=200, seed=5).epoch(0)
    for place in (len(again) - 1, 0, 7, -1):
        assert again[place].tolist() == one[place].tolist()
    assert [batch.tolist() for batch in again[3:9:2]] == [batch.tolist() for batch in one[3:9:2]]
    assert padding_shares(lengths, one[:])[0] < 0.25
    with pytest.raises(IndexError):
        one[len(one)]


def test_lengths_can_be_computed_on_access(monkeypatch: pytest.MonkeyPatch) -> None:
    class Table:
        def __len__(self) -> int:
            return 300

        def __getitem__(self, which: np.ndarray) -> np.ndarray:
            return np.arange(300)[which] % 7 + 1

    for pool in (1 << 18, 64):
        monkeypatch.setattr(bucket, "POOL", pool)
        found, wanted = (Buckets(lengths, tokens=50, seed=1).epoch(2) for lengths in (Table(), Table()[np.arange(300)]))
        assert [batch.tolist() for batch in found] == [batch.tolist() for batch in wanted]


def test_examples_of_one_length_are_dealt_out_at_once() -> None:
    batches = bucket.EqualBatches(10, 4, 1, 0)
    assert [len(batch) for batch in batches] == [4, 4, 2]
    assert sorted(np.concatenate(batches[:]).tolist()) == list(range(10))
