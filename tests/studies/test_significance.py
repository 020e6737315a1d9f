"""Tests of differences: against scipy, and against simulated studies."""

from __future__ import annotations

import math

import numpy as np
import pytest
from bench.statistics import World, looks_rate, predicted_power, rates
from scipy import stats

from regard.errors import SpecError
from regard.studies.significance import (
    ALPHA,
    TTest,
    contrast,
    equivalence,
    excluded_above,
    holm,
    paired,
    resample_items,
    resample_means,
    seeds_needed,
    spend_alpha,
    welch,
)

A, B = [30.1, 29.4, 30.8, 30.0, 29.9], [31.5, 30.2, 31.1, 31.9, 30.6]


def test_welch_is_that_of_scipy() -> None:
    found, wanted = welch(A, B), stats.ttest_ind(B, A, equal_var=False)
    assert (found.p, found.df) == pytest.approx((wanted.pvalue, wanted.df))
    assert found.interval() == pytest.approx(tuple(wanted.confidence_interval()))
    assert welch([1.0, 2.0], [1.0, 5.0, 9.0]).p == pytest.approx(
        stats.ttest_ind([1, 5, 9], [1, 2], equal_var=False).pvalue
    )


def test_paired_is_that_of_scipy() -> None:
    found, wanted = paired(A, B), stats.ttest_rel(B, A)
    assert (found.p, found.df) == pytest.approx((wanted.pvalue, wanted.df))
    with pytest.raises(SpecError, match="needs the same seeds on both sides, got 5 and 4"):
        paired(A, B[:4])


def test_seeds_that_all_agree_leave_no_doubt() -> None:
    assert welch([1.0, 1.0], [1.0, 1.0]).p == 1
    assert welch([1.0, 1.0], [2.0, 2.0]).p == 0
    with pytest.raises(SpecError, match="needs at least 2 of them, got 1"):
        welch([1.0], A)


def test_holm_is_that_of_the_definition() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.6]) == [1.0, 1.0]
    assert holm([]) == []


def test_equivalence_is_two_one_sided_tests() -> None:
    test = welch(A, B)
    for delta in (1.0, 1.5, 3.0):
        low = stats.ttest_ind(np.add(B, delta), A, equal_var=False, alternative="greater").pvalue
        high = stats.ttest_ind(np.subtract(B, delta), A, equal_var=False, alternative="less").pvalue
        assert equivalence(test, delta) == pytest.approx(max(low, high))
    assert equivalence(test, excluded_above(test)) == pytest.approx(ALPHA)
    with pytest.raises(SpecError, match="delta should be positive"):
        equivalence(test, 0)


def test_both_resamplings_agree() -> None:
    gaps = np.random.Generator(np.random.PCG64(3)).normal(0.2, 1.0, 100)
    means = resample_means(gaps)
    other = resample_items(
        lambda chosen: 0.0, lambda chosen: float(gaps.mean() if chosen is None else gaps[chosen].mean()), len(gaps)
    )
    assert means.difference == pytest.approx(other.difference) == pytest.approx(gaps.mean())
    assert means.error == pytest.approx(gaps.std() / 10, rel=0.1) == pytest.approx(other.error, rel=0.1)
    assert abs(means.p - other.p) < 0.02


def test_looks_never_spend_more_than_there_is() -> None:
    assert spend_alpha([5]) == pytest.approx(0.04)
    assert spend_alpha([5, 10]) == pytest.approx(0.008)
    assert spend_alpha([3, 5]) == pytest.approx(0.036)
    looks = [3, 3, 5, 6, 7, 8, 9, 10]
    assert sum(spend_alpha(looks[: i + 1]) for i in range(len(looks))) < ALPHA


def test_the_number_of_seeds_that_would_decide() -> None:
    seeds = welch(A, B)
    found = contrast(seeds, None, None)
    needed = seeds_needed(found, len(A))
    assert needed is not None
    assert 5 <= needed <= 8
    # against the textbook: n = 2 (z_power + z_alpha)² σ² / gap², for a small difference
    small = contrast(TTest(0.2, math.sqrt(2 / 10), 18, 0.5), None, None)
    assert seeds_needed(small, 10) == pytest.approx(2 * (0.8416 + 1.96) ** 2 / 0.04, rel=0.02)
    stuck = contrast(TTest(0.2, 0.1, 18, 0.06), resample_means(np.array([5.0, -4.6])), 2)
    assert seeds_needed(stuck, 10) is None  # the test items leave too much open
    assert seeds_needed(contrast(welch(A, A), None, None), 5) is None


STUDIES = 150
"""Few: `python -m bench.statistics` has a thousand. Four standard errors of 5 % are allowed."""
ABOVE = 100 * (ALPHA + 4 * math.sqrt(ALPHA * (1 - ALPHA) / STUDIES))


def test_equal_contenders_rarely_get_a_verdict() -> None:
    """Where seeds and items vary alike, neither test alone is enough, and the verdict is."""
    world = World(suits=math.sqrt(40))
    found = rates(world, 5, STUDIES, samples=200)
    assert found["verdict"] <= ABOVE
    assert found["items"] > ABOVE


def test_power_is_as_predicted() -> None:
    found, wanted = rates(World(), 5, STUDIES, difference=2.0, samples=200)["verdict"], predicted_power(World(), 5, 2.0)
    assert abs(found - wanted) < 400 * math.sqrt(0.25 / STUDIES)
    assert 60 < wanted < 90


def test_adding_seeds_until_it_works_does_not_help() -> None:
    assert looks_rate(World(), STUDIES // 3, samples=400) <= 100 * (
        ALPHA + 4 * math.sqrt(ALPHA * (1 - ALPHA) / (STUDIES // 3))
    )
