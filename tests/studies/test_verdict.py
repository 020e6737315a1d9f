"""Verdicts: what is said of known results."""

from __future__ import annotations

import numpy as np
import pytest

from regard.metrics.items import CountedItems, ratio
from regard.studies.verdict import Rules, Sample, Verdict, judge


def sample(name: str, gap: float, *, seeds: int = 5, spread: float = 0.1, items: int = 200, number: int = 1) -> Sample:
    """Models whose score is about 10 + gap, with this spread over seeds."""
    rng = np.random.Generator(np.random.PCG64([number, seeds]))
    easy = np.random.Generator(np.random.PCG64(9)).normal(0, 3, items)
    rows = [10 + gap + easy + spread * rng.standard_normal() + rng.normal(0, 0.5, items) for _ in range(seeds)]
    found = [CountedItems(np.stack([row, np.ones(items)], 1), ratio) for row in rows]
    return Sample(name, found, [each.score() for each in found])


def verdict(gap: float, rules: Rules, **how: float) -> Verdict:
    (found,) = judge(sample("old", 0.0, **how), [sample("new", gap, number=2, **how)], rules)  # type: ignore[arg-type]
    return found


HIGHER = Rules("score", higher=True, level=0.04, samples=400)


def test_a_clear_difference_is_better_or_worse() -> None:
    found = verdict(1.0, HIGHER)
    assert found.word == "better"
    assert found.sentence.startswith("new: better than old; score +")
    assert "95 % interval" in found.sentence
    assert "5 seeds" in found.sentence
    assert verdict(-1.0, HIGHER).word == "worse"
    assert verdict(-1.0, Rules("loss", higher=False, samples=400)).word == "better"
    assert found.plain()["difference"] == pytest.approx(1.0, abs=0.3)


def test_three_seeds_are_preliminary() -> None:
    found = verdict(1.0, HIGHER, seeds=3)
    assert found.word == "preliminary"
    assert "preliminary, better; a verdict needs 5 seeds" in found.sentence


def test_what_is_not_shown_says_what_would_decide_it() -> None:
    found = verdict(0.1, HIGHER, spread=0.3)
    assert found.word == "not shown"
    assert "; differences above " in found.sentence
    assert found.further is None or found.further > 5


def test_a_declared_delta_can_show_that_there_is_no_difference() -> None:
    rules = Rules("score", higher=True, delta=1.0, samples=400)
    found = verdict(0.0, rules)
    assert found.word == "no difference"
    assert "no difference above 1 compared with old" in found.sentence


def test_several_contenders_are_corrected_together() -> None:
    base, other = sample("old", 0.0), sample("new", 0.3, number=2)
    (alone,) = judge(base, [other], HIGHER)
    among = judge(base, [other, *(sample(f"n{i}", 0.0, number=i) for i in range(3, 8))], HIGHER)[0]
    assert alone.adjusted is not None
    assert among.adjusted is not None
    assert among.adjusted > alone.adjusted


def test_seeds_that_failed_leave_no_verdict() -> None:
    base = sample("old", 0.0)
    (found,) = judge(base, [Sample("new", [], [], {1: "training diverged"})], HIGHER)
    assert (found.word, found.sentence) == ("no result", "new: no result; training diverged")


def test_pairing_uses_the_seeds() -> None:
    base = sample("old", 0.0, spread=2.0)
    better = Sample("new", base.items, [score + 0.2 + 0.01 * i for i, score in enumerate(base.scores)])
    assert judge(base, [better], Rules("score", higher=True))[0].found is not None
    paired = judge(base, [better], Rules("score", higher=True, paired=True))[0].found
    unpaired = judge(base, [better], Rules("score", higher=True))[0].found
    assert paired is not None
    assert unpaired is not None
    assert paired.seeds.p < 1e-4 < unpaired.seeds.p
