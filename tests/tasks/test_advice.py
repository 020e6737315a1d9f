"""Advice: always a recipe that works, smaller models for smaller corpora, and what was asked for is minded."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.sources import Pairs
from regard.tasks.advice import SHAPES, advise
from regard.tasks.translate import TranslateData
from regard.text import Tokenizer
from regard.training.recipe import Recipe, merged

TRAIN = st.fixed_dictionaries(
    {},
    optional={
        "epochs": st.integers(1, 200),
        "steps": st.none() | st.integers(1, 10**6),
        "tokens": st.integers(1, 10**5),
        "accumulate": st.integers(1, 64),
    },
)


def corpus(count: int, text: str = "ein Haus am See") -> Pairs:
    return Pairs([text] * count, [text] * count)


@given(count=st.integers(1, 3000), asked=TRAIN)
def test_advice_is_a_recipe_that_parses(count: int, asked: dict[str, Any]) -> None:
    advice = advise([corpus(count, "a")], asked)
    recipe = Recipe.parse(merged({"task": "translate"}, advice.recipe, {"train": asked}))
    TranslateData.parse(recipe.data)
    recipe.model_spec({"vocab": 1000, "length": 32})
    least = -(-count // (recipe.train.tokens * recipe.train.accumulate)) * (recipe.train.epochs or 1)
    recipe.train.schedule.rate(1, total=min(least, recipe.train.steps or least), width=128)
    assert advice.reasons[0].startswith(f"{count:,} pairs, about ")


@pytest.mark.parametrize("asked", [{"steps": 5}, {"steps": 1}, {"epochs": 1}, {"accumulate": 64}, {"tokens": 10**6}])
def test_the_warm_up_is_shorter_than_what_was_asked_for(asked: dict[str, int]) -> None:
    plain = advise([corpus(5000)], {}).recipe["train"]["schedule"]["warmup"]
    short = advise([corpus(5000)], asked).recipe["train"]["schedule"]["warmup"]
    assert short < plain
    assert short <= asked.get("steps", plain) // 10 or asked.get("steps") is None


def test_larger_corpora_get_larger_models() -> None:
    widths = [shape["width"] * shape["depth"] for _, shape, _, _ in SHAPES]
    vocabularies = [vocab for _, _, vocab, _ in SHAPES]
    passes = [epochs for *_, epochs in SHAPES]
    assert widths == sorted(widths)
    assert vocabularies == sorted(vocabularies)
    assert passes == sorted(passes, reverse=True)
    assert [most for most, *_ in SHAPES] == sorted(most for most, *_ in SHAPES)


def test_the_vocabulary_has_room_for_every_character() -> None:
    """A few Chinese sentences have more characters than a small vocabulary has pieces."""
    texts = ["".join(chr(0x4E00 + 30 * line + i) for i in range(30)) for line in range(60)]
    advice = advise([Pairs(texts, texts)], {})
    settings = TranslateData.parse(advice.recipe["data"])
    assert Tokenizer.train(texts, settings.tokenizer).size > 1800


def test_several_corpora_count_together() -> None:
    both = advise([corpus(1500), corpus(1500)], {})
    assert both.recipe["model"] == advise([corpus(3000)], {}).recipe["model"]
    assert both.reasons[0] == "3,000 pairs, about 13,714 target tokens"
