"""Recipes as plain data: layers and their order, and YAML without its traps."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DataError, SpecError, UnknownName
from regard.recipes.merge import merge, merge_settings, nest, parse_yaml, read_recipe

PLAIN = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3)
KEYS = st.sampled_from(["a", "b", "c"])
TREES = st.recursive(PLAIN, lambda below: st.dictionaries(KEYS, below, max_size=3), max_leaves=8)
LAYERS = st.dictionaries(KEYS, TREES, max_size=3)


def test_later_layers_lie_over_earlier_ones_level_by_level() -> None:
    below, over = {"a": {"x": 1, "y": 2}, "b": [1, 2], "c": 3}, {"a": {"y": 5}, "b": [9], "d": None}
    assert merge(below, over) == {"a": {"x": 1, "y": 5}, "b": [9], "c": 3, "d": None}
    assert merge(below, over, {"a": None}) == {"a": None, "b": [9], "c": 3, "d": None}


def test_another_kind_replaces_the_part_and_the_same_kind_does_not() -> None:
    part = {"mix": {"kind": "full", "heads": 4}}
    assert merge(part, {"mix": {"kind": "local", "reach": 3}}) == {"mix": {"kind": "local", "reach": 3}}
    assert merge(part, {"mix": {"kind": "full", "bias": True}}) == {"mix": {"kind": "full", "heads": 4, "bias": True}}
    assert merge(part, {"mix": {"heads": 2}}) == {"mix": {"kind": "full", "heads": 2}}
    assert merge(part, {"mix": "performer"}) == {"mix": "performer"}


def test_a_part_written_as_one_word_takes_settings() -> None:
    assert merge({"optimizer": "adamw"}, {"optimizer": {"weight_decay": 0.1}}) == {
        "optimizer": {"kind": "adamw", "weight_decay": 0.1}
    }
    assert merge({"optimizer": "adam"}, {"optimizer": {"kind": "adamw"}}) == {"optimizer": {"kind": "adamw"}}


@given(LAYERS, LAYERS, LAYERS)
def test_merging_is_associative_and_changes_no_layer(one: Any, two: Any, three: Any) -> None:
    before = json.dumps([one, two, three])
    whole = merge(one, two, three)
    if not any(isinstance(value, str) for layer in (one, two, three) for value in _leaves(layer)):
        assert merge(merge(one, two), three) == whole
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
    with pytest.raises(SpecError, match="r is too large: a recipe has at most 100 levels and 10000 values"):
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
    assert nest("a.b", text) == {"a": {"b": value}}
    assert parse_yaml(f"a: {{b: {text}}}", "x") == {"a": {"b": value}}


def test_values_from_python_stay_what_they_are() -> None:
    assert nest("train.ema", None) == {"train": {"ema": None}}
    assert nest("data.metrics", ("bleu",)) == {"data": {"metrics": ("bleu",)}}


@pytest.mark.parametrize("path", ["", ".", "a.", ".a", "a..b"])
def test_a_path_has_no_empty_parts(path: str) -> None:
    with pytest.raises(SpecError, match="--set takes path=value, got the path"):
        nest(path, "1")


@pytest.mark.parametrize("text", ["[", "{a", "a: b: c", "!!python/object:os.system x", "!x y", "*a", "\t", "\x00"])
def test_what_is_not_yaml_is_an_error_of_ours(text: str) -> None:
    with pytest.raises(SpecError, match=r"the value of --set train\.ema is not YAML: "):
        nest("train.ema", text)
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


@pytest.mark.parametrize(
    "text",
    [
        "train: 2001-01-01T25:61:61Z",
        "train: {steps: " + "9" * 6000 + "}",
        "train: !!float x",
        "train: !!int x",
        "train: !!bool x",
        'task: "\\U00110000"',
    ],
)
def test_values_that_the_parser_cannot_convert(text: str) -> None:
    with pytest.raises(SpecError, match=r"^r has a value that YAML does not allow: ") as caught:
        parse_yaml(text, "r")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("text", ["[" * 3000, "a: " + "[" * 3000 + "]" * 3000, "- " * 20_000, "a: [" + "0, " * 50_000])
def test_deep_nesting_takes_no_time(text: str) -> None:
    began = time.process_time()
    with pytest.raises(SpecError):
        parse_yaml(text, "r")
    assert time.process_time() - began < 4


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_of_settings_does_not_matter(order: int) -> None:
    """`mix=performer` after `mix.features=8` lost the features."""
    given = {"mix.features": "8", "mix": "performer", "train.steps": "3", "mix.kernel.kind": "relu"}
    found = merge_settings(dict([*given.items()][::order]))
    assert found == {"mix": {"kind": "performer", "features": 8, "kernel": {"kind": "relu"}}, "train": {"steps": 3}}


@pytest.mark.parametrize("text", [r'a: "\ud800"', r'"\udc00x": 1', r'a: [{b: ["x\ud800"]}]', r'a: !!set {"\ud800"}'])
def test_half_a_character_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"^r has half a character, U\+D[8C]00$"):
        parse_yaml(text, "r")
    assert parse_yaml(r'a: "\u00e9\U0001F600"', "r") == {"a": "é😀"}
