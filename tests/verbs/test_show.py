"""`regard show`: numbers that a direct count gives too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import regard
from regard.families import transformer
from tests.verbs.calling import call


def count(net: object) -> int:
    return sum(p.numel() for p in net.parameters())  # type: ignore[attr-defined]


def by_hand(width: int, hidden: int, depth: int, vocab: int = 37000) -> int:
    """The Transformer on paper: one table, then encoder and decoder layers, each part with its norm."""
    look, feed, norm = 4 * (width**2 + width), 2 * width * hidden + hidden + width, 2 * width
    return vocab * width + depth * (look + feed + 2 * norm) + depth * (2 * look + feed + 3 * norm)


@pytest.mark.parametrize(
    ("size", "parameters"),
    [
        ("tiny", by_hand(128, 256, 4)),
        ("base", by_hand(512, 2048, 6)),
        ("big", by_hand(1024, 4096, 6)),
        ("gpt2", 124_439_808),
        ("gpt2-xl", 1_557_611_200),
    ],
)
def test_published_sizes(size: str, parameters: int) -> None:
    said = call("show", size, "--json")
    assert (said.code, said.err) == (0, "")
    assert json.loads(said.out)["parameters"] == parameters


def test_the_tree_for_people() -> None:
    said = call("show", "tiny")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith(f"6.061 M parameters ({by_hand(128, 256, 4):,})   width 128   length 1024")
    assert "128 × 128: q, k, v, out" in said.out
    assert "in training: fused; causal triangle" in said.out


def test_the_papers_figure_stands_beside() -> None:
    assert call("show", "gpt2").out.startswith("124.4 M parameters (124,439,808; the paper says 117 M)   width 768")
    assert call("show", "t5-11b").out.startswith(
        "11.31 G parameters (11,307,321,344; the paper says 11 G)   width 1024"
    )
    assert call("show", "bart-base").out.startswith("139.4 M parameters (139,420,416)   width 768")
    changed = call("show", "gpt2", "--set", "model.depth=2")
    assert "the paper" not in changed.out


def test_one_setting_changed() -> None:
    found = json.loads(call("show", "tiny", "--set", "model.decoder.depth=2", "--json").out)
    shallow = transformer.spec("tiny").replace("decoder.depth", 2)
    assert found["parameters"] == count(shallow.build())
    assert found["spec"] == json.loads(shallow.json())
    assert found["spec"]["encoder"]["depth"] == 4


@pytest.mark.parametrize("name", ["copy", "dates"])
def test_a_recipe(name: str) -> None:
    said = call("show", name, "--json")
    assert said.code == 0
    assert json.loads(said.out)["spec"]["encoder"]["depth"] == 2
    assert said.err == "regard: the vocabulary is chosen from the data; this is the family's default until then\n"


def test_a_recipe_that_waits_for_data_shows_what_training_would_take() -> None:
    said = call("show", "translate", "--json")
    assert said.code == 0
    spec = json.loads(said.out)["spec"]
    assert (spec["encoder"]["depth"], spec["encoder"]["wiring"]["kind"], spec["embed"]["vocab"]) == (
        4,
        "pre_norm",
        6000,
    )
    assert said.err == (
        "regard: training chooses size and vocabulary from the data; this is its choice for 30,000 sentence pairs\n"
    )
    wide = json.loads(call("show", "translate", "--set", "model.width=256", "--json").out)["spec"]
    assert (wide["width"], wide["encoder"]["depth"]) == (256, 4)


def test_a_recipe_with_another_family() -> None:
    """Where the model waits for data, it is what training would take for that family."""
    found = json.loads(call("show", "translate", "--set", "model.family=lstm", "--json").out)["spec"]
    assert (found["width"], found["encoder"]["blocks"][0]["mix"]["bidirectional"]) == (256, True)
    said = call("show", "gpt", "--set", "model.family=rnn", "--json")
    assert json.loads(said.out)["spec"]["width"] == 128
    assert "because 'rnn' does not have them: heads, hidden, bias, activation" in said.err


def test_what_a_change_implies_is_said() -> None:
    said = call("show", "gpt2", "--set", "model.decoder.position=rotary")
    assert said.err == (
        "regard: decoder position 'rotary' replaces embed.position='learned'; set model.embed.position to keep both\n"
    )


def test_a_recipe_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "task: translate\nmodel: {width: 32, depth: 1, heads: 2, hidden: 32, vocab: 50}\n"
    )
    said = call("show", tmp_path / "mine.yaml", "--json")
    assert json.loads(said.out)["parameters"] == by_hand(32, 32, 1, 50)


def test_a_model_folder(model: Path) -> None:
    net = regard.load(model).net
    for path in (model, model / "final"):
        said = call("show", path, "--json")
        assert (said.code, said.err) == (0, "")
        found = json.loads(said.out)
        assert found["parameters"] == count(net)
        assert found["spec"] == json.loads(net.spec.json())


def test_a_model_folder_with_one_setting_changed(model: Path) -> None:
    net = regard.load(model).net
    found = json.loads(call("show", model, "--set", "model.decoder.depth=5", "--json").out)
    assert found["parameters"] == count(net.spec.replace("decoder.depth", 5).build())


def test_costs_grow_with_the_length() -> None:
    short, long = (json.loads(call("show", "tiny", "--json", "--length", n).out) for n in (32, 320))
    assert short["length"] == 32
    assert short["flops"] < long["flops"]


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["tinny"], "no size, recipe or model folder 'tinny'; did you mean 'tiny'?"),
        (["nowhere.yaml"], "cannot read the recipe nowhere.yaml: No such file or directory"),
        (["tiny", "--set", "model.decoder.dept=2"], "no key 'dept'; did you mean 'depth'?"),
        (["tiny", "--set", "model.widht=2"], "no key 'model.widht' in 'transformer'; did you mean 'width'?"),
        (["tiny", "--set", "model.decoder.block.mix.kind=ful"], "no mixer 'ful'; did you mean 'full'?"),
        (["tiny", "--set", "decoder.depth=2"], "got 'decoder.depth'; did you mean 'model.decoder.depth'?"),
        (["copy", "--set", "train.steps=2"], "set takes model.… here, got 'train.steps'\n"),
        (["tiny", "--length", "0"], "Invalid value for '--length'"),
        (["t5-small", "--set", "model.width=0"], "model.width should be at least 1, got 0"),
        (["t5-small", "--set", "model.width=1e-400"], "model.width should be at least 1, got 0.0"),
        (["tiny", "--length", "2147483648"], "length should be 1 to 1,048,576 tokens, got 2147483648"),
        (
            ["tiny", "--set", "model.width=2147483648"],
            "a weight of this model would have more numbers than any machine holds",
        ),
    ],
)
def test_what_is_not_there(words: list[str], wanted: str) -> None:
    said = call("show", *words)
    assert (said.code, said.out) == (2, "")
    assert wanted in said.err


def test_a_recipe_whose_model_is_none(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("task: translate\nmodel: 3\n")
    said = call("show", tmp_path / "mine.yaml")
    assert said.code == 2
    assert "should be a mapping such as {family: transformer, width: 128}, got 3" in said.err
