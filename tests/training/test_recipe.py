"""Recipes: layers and their order, YAML without its traps, and errors that name the nearest valid key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DataError, SpecError, UnknownName
from regard.families import transformer
from regard.training.optim import AdamW
from regard.training.recipe import (
    Averaged,
    Recipe,
    Train,
    expand_model,
    merged,
    parse_yaml,
    read_recipe,
    set_path,
    shipped,
)
from regard.training.schedule import Constant

PLAIN = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3)
KEYS = st.sampled_from(["a", "b", "c"])
TREES = st.recursive(PLAIN, lambda below: st.dictionaries(KEYS, below, max_size=3), max_leaves=8)
LAYERS = st.dictionaries(KEYS, TREES, max_size=3)


# Layers.


def test_later_layers_lie_over_earlier_ones_level_by_level() -> None:
    below, over = {"a": {"x": 1, "y": 2}, "b": [1, 2], "c": 3}, {"a": {"y": 5}, "b": [9], "d": None}
    assert merged(below, over) == {"a": {"x": 1, "y": 5}, "b": [9], "c": 3, "d": None}
    assert merged(below, over, {"a": None}) == {"a": None, "b": [9], "c": 3, "d": None}


def test_another_kind_replaces_the_part_and_the_same_kind_does_not() -> None:
    part = {"mix": {"kind": "full", "heads": 4}}
    assert merged(part, {"mix": {"kind": "local", "reach": 3}}) == {"mix": {"kind": "local", "reach": 3}}
    assert merged(part, {"mix": {"kind": "full", "bias": True}}) == {"mix": {"kind": "full", "heads": 4, "bias": True}}
    assert merged(part, {"mix": {"heads": 2}}) == {"mix": {"kind": "full", "heads": 2}}
    assert merged(part, {"mix": "favor"}) == {"mix": "favor"}


def test_a_part_written_as_one_word_takes_settings() -> None:
    assert merged({"optimizer": "adamw"}, {"optimizer": {"decay": 0.1}}) == {
        "optimizer": {"kind": "adamw", "decay": 0.1}
    }
    assert merged({"optimizer": "adam"}, {"optimizer": {"kind": "adamw"}}) == {"optimizer": {"kind": "adamw"}}


@given(LAYERS, LAYERS, LAYERS)
def test_merging_is_associative_and_changes_no_layer(one: Any, two: Any, three: Any) -> None:
    before = json.dumps([one, two, three])
    whole = merged(one, two, three)
    if not any(isinstance(value, str) for layer in (one, two, three) for value in _leaves(layer)):
        assert merged(merged(one, two), three) == whole
    whole.setdefault("a", {})
    if isinstance(whole["a"], dict):
        whole["a"]["spoiled"] = True
    assert json.dumps([one, two, three]) == before


def _leaves(value: Any) -> list[Any]:
    return [leaf for v in value.values() for leaf in _leaves(v)] if isinstance(value, dict) else [value]


# YAML.


def test_aliases_stand_for_what_they_name() -> None:
    assert parse_yaml("a: &x {b: 1}\nc: *x\nd: {<<: *x, e: 2}", "r") == {
        "a": {"b": 1},
        "c": {"b": 1},
        "d": {"b": 1, "e": 2},
    }


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 20_000,
        "a: " + "[" * 101 + "]" * 101,
        "a: &a {x: *a}",
        "a: &a [*a]",
        "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{p: *a{i - 1}, q: *a{i - 1}}}\n" for i in range(1, 40)),
        "a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 2000)),
    ],
    ids=["deep", "deeper than allowed", "within itself", "a list within itself", "doubled", "a chain"],
)
def test_what_has_no_end_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="r has too many levels or values: no recipe has over 100 or 100000"):
        parse_yaml(text, "r")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-3", 0.003),
        ("1e-3", 0.001),
        ("1E5", 100000.0),
        ("5", 5),
        ("0.1", 0.1),
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("off", "off"),
        ("null", None),
        ("true", True),
        ("chars", "chars"),
        ("12:30", "12:30"),
        ("[1, 2]", [1, 2]),
        ("{kind: full, heads: 2}", {"kind": "full", "heads": 2}),
    ],
)
def test_values_on_the_command_line_are_yaml_1_2(text: str, value: Any) -> None:
    assert set_path("a.b", text) == {"a": {"b": value}}
    assert parse_yaml(f"a: {{b: {text}}}", "x") == {"a": {"b": value}}


def test_values_from_python_stay_what_they_are() -> None:
    assert set_path("train.ema", None) == {"train": {"ema": None}}
    assert set_path("data.metrics", ("bleu",)) == {"data": {"metrics": ("bleu",)}}


@pytest.mark.parametrize("path", ["", ".", "a.", ".a", "a..b"])
def test_a_path_has_no_empty_parts(path: str) -> None:
    with pytest.raises(SpecError, match="--set takes path=value, got the path"):
        set_path(path, "1")


@pytest.mark.parametrize("text", ["[", "{a", "a: b: c", "!!python/object:os.system x", "!x y", "*a", "\t", "\x00"])
def test_what_is_not_yaml_is_an_error_of_ours(text: str) -> None:
    with pytest.raises(SpecError, match=r"the value of --set train\.ema is not YAML: "):
        set_path("train.ema", text)
    with pytest.raises(SpecError, match=r"my\.yaml is not YAML: "):
        parse_yaml(f"a: {text}\n", "my.yaml")


def test_a_key_written_twice_is_an_error() -> None:
    with pytest.raises(SpecError, match='duplicate key "a"'):
        parse_yaml("a: 1\na: 2", "x")


def test_a_recipe_is_a_mapping() -> None:
    with pytest.raises(SpecError, match="x should be a mapping with task, data, model and train, got list"):
        parse_yaml("- a\n", "x")
    with pytest.raises(SpecError, match="got NoneType"):
        parse_yaml("", "x")


@given(
    about=st.text(st.characters(codec="utf-8"), max_size=20),
    path=st.sampled_from(["no", "1e3", "2026-11-15", "~", "a b"]),
)
def test_a_recipe_there_and_back_through_yaml(about: str, path: str) -> None:
    """What a run keeps is what it was given: otherwise the same command would find another recipe."""
    about = "".join(c for c in about if c.isprintable() or c in "\n\t")
    recipe = Recipe(
        "translate", Train(steps=1, optimizer=AdamW(eps=1e-9), clip=None), data={"x": [path, 0.1, 1e-30]}, about=about
    )
    plain = json.loads(recipe.json())
    assert parse_yaml(recipe.yaml(), "x") == plain
    assert Recipe.parse(parse_yaml(recipe.yaml(), "x")) == recipe


# What recipes say.


def test_every_shipped_recipe_parses() -> None:
    assert {"copy", "dates", "translate"} <= set(shipped())
    for name in shipped():
        plain = read_recipe(name)
        plain.pop("advise", None)
        recipe = Recipe.parse(merged({"task": "lm", "train": {"steps": 1}}, plain))
        assert recipe.about, name
        assert "task" in plain or name == "finetune", "whose task is that of the model it goes on with"
        if plain.get("model"):
            recipe.model_spec({"vocab": 11, "length": 16}).build()


def test_unknown_recipes_and_files() -> None:
    with pytest.raises(UnknownName, match="no recipe 'date'; did you mean 'dates'"):
        read_recipe("date")
    with pytest.raises(DataError, match=r"cannot read the recipe nowhere\.yaml: No such file"):
        read_recipe("nowhere.yaml")


def test_a_recipe_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"a: \xff\n")
    with pytest.raises(DataError, match=r"x\.yaml is not UTF-8 \(byte 3\); a recipe is a YAML text"):
        read_recipe(str(path))
    path.write_text("task: translate\n")
    assert read_recipe(str(path)) == {"task": "translate"}


def test_parts_by_kind_with_what_was_left_out() -> None:
    plain = {
        "task": "translate",
        "train": {"steps": 5, "schedule": {"kind": "constant", "peak": 1}, "average": {"count": 2}},
    }
    recipe = Recipe.parse(plain)
    assert recipe.train.schedule == Constant(peak=1.0)
    assert recipe.train.average == Averaged("last", 2)
    assert recipe.train.epochs is None


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("train.stepz", 1, "no key 'train.stepz'; did you mean 'steps'"),
        ("trian", {}, "no key 'trian'; did you mean 'train'"),
        ("train.optimizer", "adm", "no optimizer 'adm'; did you mean 'adam'"),
        ("train.schedule", {"kind": "cosin"}, "no schedule 'cosin'; did you mean 'cosine'"),
        ("train.schedule", {"kind": "cosine", "peek": 1}, "no key 'peek'; did you mean 'peak'"),
        ("train.schedule", {"peak": 1}, "'kind' is missing; there is paper"),
        ("train.precision", "half", "input should be 'auto', 'float32' or 'bfloat16'"),
        ("train.average.which", "first", "input should be 'last' or 'best'"),
        ("train.ema", 1.0, "train.ema: input should be less than 1"),
        ("train.steps", 0, "train.steps: input should be greater than or equal to 1"),
        ("train.clip", ".nan", "train.clip: "),
        ("decode.beem", 2, "no key 'decode.beem'; did you mean 'beam'"),
    ],
)
def test_faults_name_the_place_and_the_nearest_key(path: str, value: Any, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        Recipe.parse(merged({"task": "translate", "train": {"steps": 1}}, set_path(path, value)))
    assert message in str(caught.value)


def test_all_faults_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        Recipe.parse({"train": {"steps": -1, "tokenz": 3}, "data": 5})
    for part in ("task is missing", "train.steps", "train.tokenz", "data"):
        assert part in str(caught.value)


def test_a_run_must_end() -> None:
    with pytest.raises(SpecError, match="say how long to train: `epochs` or `steps`"):
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
