"""Advice: always a recipe that works, smaller models for smaller corpora, and what was asked for is minded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard import families
from regard.data.pairs import Pairs
from regard.errors import SpecError
from regard.families.expand import expand_model, family_arguments
from regard.model.build import refusals
from regard.recipes.merge import merge
from regard.tasks.common.advice import ROWS, TABLES, SizeRow, advise_pairs
from regard.tasks.translate import TranslateData
from regard.text import Tokenizer
from regard.training.recipe import Recipe

TRAIN = st.fixed_dictionaries(
    {},
    optional={
        "epochs": st.integers(1, 200),
        "steps": st.none() | st.integers(1, 10**6),
        "batch_tokens": st.integers(1, 10**5),
        "accumulate": st.integers(1, 64),
    },
)


def corpus(count: int, text: str = "ein Haus am See") -> Pairs:
    return Pairs([text] * count, [text] * count)


class Many(Sequence[str]):
    """One text, so many times, in no room at all."""

    def __init__(self, text: str, count: int) -> None:
        self.text, self.count = text, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: Any) -> Any:
        found = range(self.count)[i]
        return self.text if isinstance(found, int) else [self.text] * len(found)

    def __iter__(self) -> Iterator[str]:
        return repeat(self.text, self.count)


@given(count=st.integers(1, 3000), asked=TRAIN)
def test_advice_is_a_recipe_that_parses(count: int, asked: dict[str, Any]) -> None:
    advice = advise_pairs([corpus(count, "a")], asked)
    recipe = Recipe.parse(merge({"task": "translate"}, advice.recipe, {"train": asked}))
    TranslateData.parse(recipe.data)
    recipe.model_spec({"vocab": 1000, "length": 32})
    least = -(-count // (recipe.train.batch_tokens * recipe.train.accumulate))
    lengths = [recipe.train.steps, None if recipe.train.epochs is None else least * recipe.train.epochs]
    recipe.train.schedule.rate(1, total=min(length for length in lengths if length is not None), width=128)
    assert advice.reasons[0].startswith(f"{count:,} pairs, about ")


@pytest.mark.parametrize(
    "asked", [{"steps": 5}, {"steps": 1}, {"epochs": 1}, {"accumulate": 64}, {"batch_tokens": 10**6}]
)
def test_the_warm_up_is_shorter_than_what_was_asked_for(asked: dict[str, int]) -> None:
    plain = advise_pairs([corpus(5000)], {}).recipe["train"]["schedule"]["warmup"]
    short = advise_pairs([corpus(5000)], asked).recipe["train"]["schedule"]["warmup"]
    assert short < plain
    assert short <= asked.get("steps", plain) // 10 or asked.get("steps") is None


@pytest.mark.parametrize("rows", [ROWS, *TABLES.values()])
def test_larger_corpora_get_larger_models(rows: tuple[SizeRow, ...]) -> None:
    assert [row.width * row.depth for row in rows] == sorted(row.width * row.depth for row in rows)
    assert [row.vocab for row in rows] == sorted(row.vocab for row in rows)
    assert [row.epochs for row in rows] == sorted((row.epochs for row in rows), reverse=True)
    assert [row.pairs for row in rows] == sorted(row.pairs for row in rows)
    work = [row.operations_per_token(row.vocab) for row in rows]
    assert work == sorted(work)


@pytest.mark.parametrize("family", TABLES)
@pytest.mark.parametrize("row", range(6))
def test_each_family_gets_settings_of_its_own(family: str, row: int) -> None:
    """They are arguments of the family, all of them, and the model can be built."""
    found = TABLES[family][row]
    assert set(found.model) <= family_arguments(family)
    recipe = advise_pairs(
        [Pairs(Many("ein Haus", min(found.pairs, 9)), Many("ein Haus", min(found.pairs, 9)))], {}, {"family": family}
    )
    assert recipe.recipe["model"]["family"] == family
    whole = Recipe.parse(merge({"task": "translate"}, recipe.recipe, {"model": found.model}))
    assert refusals(whole.model_spec({"vocab": 1000, "length": 32})) == []


@pytest.mark.parametrize("family", ["lstm", "gru"])
@pytest.mark.parametrize(
    ("asked", "both"),
    [
        ({}, True),
        ({"attention": "general"}, True),
        ({"attention": "none"}, False),
        ({"attention": "dot"}, False),
        ({"attention": "additive", "reverse_source": True}, False),
    ],
    ids=["default", "general", "none", "dot", "reversed"],
)
def test_a_recurrent_encoder_reads_as_its_attention_needs(family: str, asked: dict[str, Any], both: bool) -> None:
    """Without attention it is the published model: one direction, and for an LSTM the source in reverse."""
    model = {"family": family, **asked}
    advised = advise_pairs([corpus(50)], {}, model).recipe
    whole = Recipe.parse(merge({"task": "translate"}, advised, {"model": model}))
    spec = whole.model_spec({"vocab": 100, "length": 32})
    assert refusals(spec) == []
    first = spec.plain()["encoder"]["blocks"][0]["mix"]
    reverse = not both and (family == "lstm" or "reverse_source" in asked)
    assert (first.get("bidirectional", False), first.get("reverse", False)) == (both, reverse)


@pytest.mark.parametrize("family", ["lstm", "gru"])
def test_a_source_read_both_ways_is_not_reversed(family: str) -> None:
    with pytest.raises(SpecError, match="reverse_source does nothing if the encoder reads in both directions"):
        families.find(family)(bidirectional=True, reverse_source=True)


@pytest.mark.parametrize(("threads", "width"), [(1, 256), (2, 384), (8, 512)])
def test_a_corpus_too_large_for_the_machine_gets_a_smaller_model(
    threads: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    text = "zwei junge Männer stehen vor dem großen Haus am See und warten auf den Bus in die Stadt"
    advice = advise_pairs([Pairs(Many(text, 3_000_000), Many(text, 3_000_000))], {"threads": threads})
    assert advice.recipe["model"]["width"] == width
    assert advice.recipe["train"]["patience"] == 10
    assert ("width 512 would take about" in advice.reasons[2]) is (width < 512)
    assert "the run ends when 10 of them in a row" in advice.reasons[-1]


def test_a_slow_machine_does_not_shrink_a_small_model() -> None:
    assert advise_pairs([corpus(5000)], {"threads": 1, "epochs": 10**6}).recipe["model"]["width"] == 128


def test_the_vocabulary_has_room_for_every_character() -> None:
    """A few Chinese sentences have more characters than a small vocabulary has pieces."""
    texts = ["".join(chr(0x4E00 + 30 * line + i) for i in range(30)) for line in range(60)]
    advice = advise_pairs([Pairs(texts, texts)], {})
    settings = TranslateData.parse(advice.recipe["data"])
    assert Tokenizer.train(texts, settings.tokenizer).size > 1800


def test_several_corpora_count_together() -> None:
    both = advise_pairs([corpus(1500), corpus(1500)], {})
    assert both.recipe["model"] == advise_pairs([corpus(3000)], {}).recipe["model"]
    assert both.reasons[0] == "3,000 pairs, about 13,714 target tokens"


@pytest.mark.parametrize("kind", ["performer", "linear_attention", "linformer", "lsh", "flash", "bigbird"])
def test_a_mixer_of_your_own_choice_drops_what_it_cannot_do(kind: str) -> None:
    """The advised dropout of attention weights is for attention that has weights."""
    for row in ROWS:
        notes: list[str] = []
        model = {"family": "transformer", **row.model, "width": 16, "hidden": 16, "heads": 2, "depth": 1}
        model["encoder"] = {"block": {"mix": {"kind": kind}}}
        spec = expand_model(model, {"vocab": 20, "length": 16}, notes)
        spec.build(seed=0)
        asked = getattr(spec.encoder.block.mix, "dropout", None)  # type: ignore[union-attr]
        assert asked == row.inner or any("dropout" in note and "dropped" in note for note in notes) is (row.inner > 0)
