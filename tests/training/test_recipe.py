"""Recipes: what they say, there and back, and errors that name the nearest valid key."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import SpecError
from regard.families import transformer
from regard.families.expand import expand_model
from regard.recipes.merge import PURPOSES, list_recipes, merge, nest, parse_yaml, read_recipe
from regard.training.optimizer import AdamW
from regard.training.recipe import Averaging, Recipe, Train
from regard.training.schedule import Constant


@given(
    about=st.text(st.characters(codec="utf-8"), max_size=20),
    path=st.sampled_from(["no", "1e3", "2026-11-15", "~", "a b"]),
)
def test_a_recipe_there_and_back_through_yaml(about: str, path: str) -> None:
    """What a run keeps is what it was given: otherwise the same command would find another recipe."""
    about = "".join(c for c in about if c.isprintable() or c in "\n\t")
    recipe = Recipe(
        "translate",
        Train(steps=1, optimizer=AdamW(eps=1e-9), clip_norm=None),
        data={"x": [path, 0.1, 1e-30]},
        about=about,
    )
    plain = json.loads(recipe.json())
    assert parse_yaml(recipe.yaml(), "x") == plain
    assert Recipe.parse(parse_yaml(recipe.yaml(), "x")) == recipe


def test_every_shipped_recipe_parses() -> None:
    assert {"copy", "dates", "translate"} <= set(list_recipes())
    for name in list_recipes():
        plain = read_recipe(name)
        plain.pop("auto", None)
        recipe = Recipe.parse(merge({"task": "lm", "train": {"steps": 1}}, plain))
        assert recipe.about, name
        assert recipe.purpose in PURPOSES, f"{name}: give it a purpose of recipes/merge.py"
        assert "task" in plain or name == "finetune", "whose task is that of the model it goes on with"
        if plain.get("model"):
            recipe.model_spec({"vocab": 11, "length": 16}).build()


def test_parts_by_kind_with_what_was_left_out() -> None:
    plain = {
        "task": "translate",
        "train": {"steps": 5, "schedule": {"kind": "constant", "lr": 1}, "average": {"count": 2}},
    }
    recipe = Recipe.parse(plain)
    assert recipe.train.schedule == Constant(lr=1.0)
    assert recipe.train.average == Averaging("last", 2)
    assert recipe.train.epochs is None


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("train.stepz", 1, "no key 'train.stepz'; did you mean 'steps'"),
        ("trian", {}, "no key 'trian'; did you mean 'train'"),
        ("train.optimizer", "adm", "no optimizer 'adm'; did you mean 'adam'"),
        ("train.schedule", {"kind": "cosin"}, "no schedule 'cosin'; did you mean 'cosine'"),
        ("train.schedule", {"kind": "cosine", "lrr": 1}, "no key 'lrr'; did you mean 'lr'"),
        ("train.schedule", {"lr": 1}, "'kind' is missing; available: paper"),
        ("train.precision", "half", "input should be 'auto', 'float32' or 'bfloat16'"),
        ("train.average.which", "first", "input should be 'last' or 'best'"),
        ("train.ema", 1.0, "train.ema: input should be less than 1"),
        ("train.steps", 0, "train.steps: input should be greater than or equal to 1"),
        ("train.clip_norm", ".nan", "train.clip_norm: "),
        ("decode.beem", 2, "no key 'decode.beem'; did you mean 'beam'"),
    ],
)
def test_faults_name_the_place_and_the_nearest_key(path: str, value: Any, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        Recipe.parse(merge({"task": "translate", "train": {"steps": 1}}, nest(path, value)))
    assert message in str(caught.value)


def test_all_faults_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        Recipe.parse({"train": {"steps": -1, "tokenz": 3}, "data": 5})
    for part in ("task is missing", "train.steps", "train.tokenz", "data"):
        assert part in str(caught.value)


def test_a_run_must_end() -> None:
    with pytest.raises(SpecError, match="train needs a length: set `steps` or `epochs`"):
        Train()


# The model.


def test_a_model_is_a_family_with_its_arguments_and_an_overlay() -> None:
    model = {"family": "transformer", "width": 32, "heads": 4, "depth": 2, "dropout": 0.0}
    spec = expand_model(model, {"vocab": 50, "length": 20})
    assert spec == transformer.spec(width=32, heads=4, depth=2, dropout=0.0, vocab=50, length=20)
    over = expand_model({**model, "decoder": {"block": {"mix": {"heads": 2}}}}, {"vocab": 50, "length": 20})
    assert over == spec.replace("decoder.block.mix.heads", 2)
    assert expand_model({**model, "vocab": 60}, {"vocab": 50, "length": 20}).embed.vocab == 60, "asked for beats found"


def test_a_whole_spec_with_an_overlay() -> None:
    spec = transformer.spec(width=32, heads=4, depth=2, vocab=50, length=20)
    assert expand_model({"spec": spec.plain()}, {"vocab": 99}) == spec
    assert expand_model({"spec": spec.plain(), "init": "normal"}, {}) == spec.replace("init", "normal")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"familiy": "gpt"}, "no key 'model.familiy' in 'transformer'"),
        ({"widht": 3}, "no key 'model.widht' in 'transformer'; did you mean 'width'"),
        ({"family": "transfomer"}, "no family 'transfomer'; did you mean 'transformer'"),
        ({"size": "bas"}, "no size 'bas'; did you mean 'base'"),
        ({"width": "wide", "heads": [1]}, "model.width: "),
        ({"width": "wide", "heads": [1]}, "model.heads: "),
        ({"norm": "mid"}, "no norm placement 'mid'"),
        ({"dropout": 2.0}, "less than 1"),
    ],
)
def test_a_wrong_model_is_told_before_it_is_built(model: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        expand_model(model, {"vocab": 50, "length": 20})
    assert message in str(caught.value)
