"""Lines that are swapped or not translated are found by the corpus' own letters."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from regard.data.filters import Pair
from regard.data.filters.language_id import Language
from tests.data.filters.test_filters import kept

ENGLISH = "the a of and some with under house water morning people thing walks sleeps".split()  # noqa: SIM905
GERMAN = "der ein von und etwas mit unter haus wasser morgen leute ding läuft schläft".split()  # noqa: SIM905


def sentences(count: int) -> list[Pair]:
    """Word by word, in an order that is never the same."""
    picks = [[(i * 7 + j * (i % 11 + 1)) % 14 for j in range(5 + i % 4)] for i in range(count)]
    return [(" ".join(ENGLISH[p] for p in row), " ".join(GERMAN[p] for p in row)) for row in picks]


@pytest.mark.parametrize("share", [3, 10])
def test_swapped_and_untranslated_lines_are_found_among_many(share: int) -> None:
    pairs = sentences(300)
    for i in range(0, 300, share):
        one, other = pairs[i]
        pairs[i] = [(other, one), (one, one), (other, other)][i % 3 if share == 10 else 0]
    assert kept(Language(), *pairs) == [bool(i % share) for i in range(300)]


def test_names_numbers_and_short_texts_stay() -> None:
    sure = ("Berlin", "Berlin"), ("2019", "2019"), ("OK", "OK"), ("an", "an")
    assert kept(Language(), *sure, sample=sentences(300)) == [True] * 4
    assert kept(Language(), ("the", "the"), sample=sentences(300)) == [False]
    assert kept(Language(20), ("the", "the"), sample=sentences(300)) == [True]


def test_two_sides_of_one_language_are_left_alone() -> None:
    english = [one for one, _ in sentences(400)]
    pairs = list(zip(english[:200], english[200:], strict=True))
    assert Language().build(pairs).remark == "the two sides are too similar to distinguish"
    assert all(kept(Language(), *pairs))
    for few in ([], sentences(1)):
        assert Language().build(few).keeps("the house", "the house with the water")


def test_real_captions(shared_data: Path) -> None:
    """Of 1,000 sound pairs none is dropped, and of those swapped or not translated all but a few."""
    files = (shared_data / "multi30k" / f"train.{side}.gz" for side in ("en", "de"))
    pairs = list(zip(*(gzip.decompress(file.read_bytes()).decode().split("\n") for file in files), strict=True))
    judge = Language().build(pairs[:1000])
    held = pairs[20_000:21_000]
    assert all(judge.keeps(*pair) for pair in held)
    assert sum(judge.keeps(other, one) for one, other in held) <= 2
    assert sum(judge.keeps(one, one) for one, _ in held) <= 10
    assert sum(judge.keeps(other, other) for _, other in held) <= 10
