"""The bootstrap: scores of selections are those of the metric itself, and intervals are those of the theory."""

from __future__ import annotations

import math

import numpy as np
import pytest

from regard.errors import DataError, SpecError
from regard.metrics import METRICS, Metric
from regard.metrics.bootstrap import Difference, bootstrap
from regard.metrics.items import bits_per_byte, count_items, percentage, perplexity, ratio

pytestmark = pytest.mark.numeric

DECODED = [name for name, metric in METRICS.items() if metric.decodes and not metric.reads_sources]
REFERENCES = [
    "the cat sat on the mat",
    "a dog runs",
    "two birds fly over the house .",
    "it rains",
    "well done , all",
] * 4
GOOD = [line.replace("the", "a") if i % 3 else line for i, line in enumerate(REFERENCES)]
POOR = [" ".join(reversed(line.split()[1:])) if i % 2 else line[:-3] for i, line in enumerate(REFERENCES)]


@pytest.mark.parametrize("name", DECODED)
def test_counting_once_gives_the_same_score(name: str) -> None:
    """For any selection of lines, also with some of them twice: the metric itself is the oracle."""
    metric, draw = METRICS[name], np.random.default_rng(0)
    items = metric.items(GOOD, REFERENCES)
    assert items.score() == pytest.approx(metric.compute(GOOD, REFERENCES), abs=1e-9)
    for _ in range(5):
        pick = draw.integers(0, len(REFERENCES), len(REFERENCES))
        slow = metric.compute([GOOD[i] for i in pick], [REFERENCES[i] for i in pick])
        assert items.score(pick) == pytest.approx(slow, abs=1e-9)


@pytest.mark.parametrize("name", DECODED)
def test_the_better_one_wins(name: str) -> None:
    metric = METRICS[name]
    poor, good = metric.items(POOR, REFERENCES), metric.items(GOOD, REFERENCES)
    found = bootstrap([poor, good, poor], higher=metric.higher, samples=100)
    gap = found.differences[0, 1]
    assert gap.difference == pytest.approx(metric.compute(GOOD, REFERENCES) - metric.compute(POOR, REFERENCES))
    assert gap.low <= gap.difference <= gap.high
    assert (gap.difference > 0) == metric.higher
    assert gap.not_better < 0.05
    assert found.differences[1, 2].not_better > 0.95
    assert found.differences[0, 2] == Difference(0.0, 0.0, 0.0, 1.0), "a model against itself"
    assert [score.score for score in found.scores] == [poor.score(), good.score(), poor.score()]
    assert all(score.low <= score.score <= score.high for score in found.scores)


def test_a_metric_of_the_users_own() -> None:
    length = Metric("length", lambda outputs, references: sum(map(len, outputs)) / len(outputs))
    found = bootstrap([length.items([text] * 4, ["x"] * 4) for text in ("a", "abc")], samples=10)
    assert found.differences[0, 1].plain() == {"difference": 2, "low": 2, "high": 2, "not_better": 0}
    assert found.scores[1].plain() == {"score": 3, "low": 3, "high": 3}


def test_lines_without_a_word_are_no_reason_to_stop() -> None:
    items = [METRICS["wer"].items(outputs, ["", "b"]) for outputs in (["a", "b"], ["a", "c"])]
    assert len(bootstrap(items, samples=50).scores) == 2


def test_all_are_scored_on_the_same_lines() -> None:
    """One is always a point above the other, line by line: drawn apart the difference would vary, drawn in pairs it cannot."""
    points = Metric("points", lambda outputs, references: sum(map(float, outputs)))
    lines = [[str(i + more) for i in range(20)] for more in (0, 1)]
    gap = bootstrap([points.items(each, each) for each in lines], samples=50).differences[0, 1]
    assert (gap.low, gap.high) == (20, 20)


def test_the_interval_of_an_accuracy_is_the_binomial_one() -> None:
    hits = np.arange(400) % 4 > 0
    items = count_items(np.stack([hits, np.ones(400)], 1), percentage)
    (found,) = bootstrap([items], samples=2000).scores
    half = 1.96 * math.sqrt(0.75 * 0.25 / 400) * 100
    assert found.score == 75.0
    assert (found.low, found.high) == (pytest.approx(75 - half, abs=0.6), pytest.approx(75 + half, abs=0.6))


def test_losses_of_language_models() -> None:
    nats, tokens = np.array([[2.0, 1], [8.0, 4]]).T
    rows = np.stack([nats, tokens], 1)
    assert count_items(rows, ratio).score() == 2.0
    assert count_items(rows, perplexity).score() == pytest.approx(math.exp(2))
    assert count_items(rows, bits_per_byte(bytes_per_token=1.0, unknown_share=0.0)).score() == pytest.approx(
        2 / math.log(2)
    )
    assert count_items([[1e9, 1]], perplexity).score() < math.inf
    one, other = count_items(rows, ratio), count_items(rows - [[1, 0], [4, 0]], ratio)
    assert bootstrap([one, other], higher=False, samples=20).differences[0, 1].not_better == 0


def test_progress_and_different_items() -> None:
    seen: list[tuple[int, int]] = []
    items = count_items([[1, 1]], ratio)
    bootstrap([items], samples=3, progress=lambda *now: seen.append(now))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    with pytest.raises(DataError, match=r"on the same test items, got \[1, 2\] of them"):
        bootstrap([items, count_items([[1, 1], [1, 1]], ratio)])


def test_no_samples_give_no_interval() -> None:
    for samples, said in ((0, "0"), (10**7, "10000000"), (10**400, "more digits than fit here")):
        with pytest.raises(SpecError, match=f"samples should be 1 to 1,000,000, got {said}$"):
            bootstrap([count_items([(1, 1)], ratio)], samples=samples)
