"""Generators: pure functions of their fields, and no validation pair is ever trained on."""

from __future__ import annotations

import string
import subprocess
import sys
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.generators import GENERATORS, LETTERS, Algorithm, Copy, CopyMemory, Dates, GeneratorSpec, Problem
from regard.errors import SpecError, UnknownName

SPECS: list[GeneratorSpec] = [
    Copy(count=300, valid=50),
    Copy(reverse=True, seed=-3, count=50),
    Dates(count=200, valid=50),
    Algorithm(count=200, valid=50),
    Algorithm("sort", base=10, seed=-1, count=50),
    CopyMemory(count=200, valid=50),
]


def test_the_table() -> None:
    assert list(GENERATORS) == ["dates", "copy", "algorithm", "copy_memory"]
    assert GeneratorSpec.parse({"kind": "copy", "max_length": 3}) == Copy(max_length=3)
    with pytest.raises(UnknownName, match="no generator 'cpy'; did you mean 'copy'"):
        GeneratorSpec.parse("cpy")


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_pure(spec: GeneratorSpec) -> None:
    for part in ("train", "valid"):
        assert spec.pairs(part) == spec.pairs(part)
    assert spec.pairs("train").source != spec.pairs("valid").source[: len(spec.pairs("train"))]
    other = type(spec).parse({**{k: v for k, v in spec.plain().items() if k != "kind"}, "seed": 99})
    assert other.pairs("train") != spec.pairs("train")


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_a_larger_corpus_begins_like_a_smaller_one(spec: GeneratorSpec) -> None:
    more = spec.replace("count", 2 * spec.plain()["count"])
    assert more.pairs("train").source[: len(spec.pairs("train"))] == spec.pairs("train").source


@given(
    symbols=st.integers(2, len(LETTERS)),
    max_length=st.integers(4, 12),
    seed=st.integers(-5, 2**70),
    reverse=st.booleans(),
)
def test_copies(symbols: int, max_length: int, seed: int, reverse: bool) -> None:
    spec = Copy(symbols=symbols, max_length=max_length, count=200, valid=30, seed=seed, reverse=reverse)
    train, valid = spec.pairs("train"), spec.pairs("valid")
    assert (len(train), len(valid)) == (200, 30)
    assert not set(train.source) & set(valid.source), "none of them is seen in training"
    for pairs in (train, valid):
        assert pairs.target == [s[::-1] if reverse else s for s in pairs.source]
        assert {*"".join(pairs.source)} <= set(LETTERS[:symbols])
        assert {len(s) for s in pairs.source} <= set(range(1, max_length + 1))
    assert train.name == ("reverse (train)" if reverse else "copy (train)")


def test_held_out_strings_stay_held_out_whatever_the_seed() -> None:
    trained = {
        s for seed in range(20) for s in Copy(symbols=3, max_length=4, seed=seed, count=500).pairs("train").source
    }
    judged = {
        s for seed in range(20) for s in Copy(symbols=3, max_length=4, seed=seed, valid=500).pairs("valid").source
    }
    assert not trained & judged
    assert len(judged) > 5


def test_lengths_and_letters_are_even() -> None:
    source = Copy(count=6000, max_length=5, symbols=4).pairs("train").source
    lengths = [sum(len(s) == n for s in source) for n in range(2, 6)]
    assert max(lengths) < 1.25 * min(lengths)
    letters = [sum(s.count(letter) for s in source if len(s) > 2) for letter in "abcd"]
    assert max(letters) < 1.1 * min(letters)


def test_dates_of_validation_are_never_seen_in_training() -> None:
    spec = Dates(count=5000, valid=500)
    assert not set(spec.pairs("train").target) & set(spec.pairs("valid").target)


def test_too_few_strings_to_keep_any_apart() -> None:
    with pytest.raises(
        SpecError, match=r"there are too few different strings for '(train|valid)'; raise symbols or max_length"
    ):
        for part in ("train", "valid"):
            Copy(symbols=1, max_length=1).pairs(part)


@pytest.mark.parametrize("field", [{"symbols": 0}, {"symbols": 63}, {"max_length": 0}, {"count": 0}])
def test_fields_that_cannot_be(field: dict[str, int]) -> None:
    with pytest.raises(SpecError, match=next(iter(field))):
        Copy(**field)


def test_the_same_in_another_process() -> None:
    code = "from regard.data.generators import Copy; print(Copy(count=3, max_length=5, seed=7).pairs('train').source)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert found == str(Copy(count=3, max_length=5, seed=7).pairs("train").source)


def number(text: str, base: int) -> int:
    """What a number is, its least significant digit first."""
    values = [
        ord(c) - 0x4E00 + 62 if ord(c) >= 0x4E00 else (string.digits + string.ascii_letters).index(c) for c in text
    ]
    assert max(values, default=0) < base
    return sum(value * base**i for i, value in enumerate(values))


@given(
    problem=st.sampled_from(get_args(Problem)), base=st.one_of(st.integers(2, 70), st.just(10_000)),
    low=st.integers(1, 4), more=st.integers(2, 6), seed=st.integers(-5, 2**70),
)  # fmt: skip
def test_algorithms(problem: Problem, base: int, low: int, more: int, seed: int) -> None:
    spec = Algorithm(problem, base, low, low + more, count=60, valid=10, seed=seed)
    train, valid = spec.pairs("train"), spec.pairs("valid")
    assert (len(train), len(valid)) == (60, 10)
    assert not set(train.source) & set(valid.source)
    for source, target in (
        *zip(train.source, train.target, strict=True),
        *zip(valid.source, valid.target, strict=True),
    ):
        if problem in ("addition", "multiplication"):
            a, b = source.split("+" if problem == "addition" else "*")
            x, y = number(a, base), number(b, base)
            assert len(a) == len(b)
            assert number(target, base) == (x + y if problem == "addition" else x * y)
            assert len(target) == (len(a) + 1 if problem == "addition" else 2 * len(a))
        else:
            wanted = {
                "copy": source,
                "reverse": source[::-1],
                "sort": "".join(sorted(source, key=lambda c: number(c, base))),
            }
            assert target == wanted[problem]
        assert low <= len(source.partition("+")[0].partition("*")[0]) <= low + more
        assert len(target) <= len(source)
    assert train.name == f"{problem} (train)"


def test_a_sum() -> None:
    assert Algorithm().solve([0, 1, 1], [1, 0, 1]) == [1, 1, 0, 1]
    assert Algorithm("multiplication", 10).solve([9, 9], [9, 9]) == [1, 0, 8, 9]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"base": 1}, "base should be 2 to 10,000, got 1; 2 is binary, 10 decimal"),
        ({"base": -2}, "base should be 2 to 10,000, got -2; 2 is binary, 10 decimal"),
        ({"base": 10_001}, "base should be 2 to 10,000, got 10,001; 2 is binary, 10 decimal"),
        ({"min_digits": 9, "max_digits": 3}, "min_digits is 9, more than max_digits (3); swap them"),
    ],
)
def test_algorithms_that_cannot_be(settings: dict[str, int], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        GeneratorSpec.parse({"kind": "algorithm", **settings})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_too_few_problems() -> None:
    with pytest.raises(SpecError, match="there are too few different problems for 'valid'; raise base or max_digits"):
        Algorithm("copy", 2, max_digits=1).pairs("valid")


def test_copy_memory_waits_before_it_asks() -> None:
    made = CopyMemory(symbols=3, items=4, delay=6, count=30, valid=5)
    train, valid = made.pairs("train"), made.pairs("valid")
    assert (len(train.source), len(valid.source)) == (30, 5)
    for source, target in zip(train.source, train.target, strict=True):
        assert source == f"{target}......?"
        assert len(target) == 4
        assert {*target} <= {*"abc"}
    assert not {*train.target} & {*valid.target}
    assert made.pairs("train").source == train.source
    with pytest.raises(SpecError, match="too few different strings for 'valid'; raise symbols or items"):
        CopyMemory(symbols=1, items=1).pairs("valid")
