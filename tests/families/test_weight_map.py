"""Tables of names: what a row does to a weight, it undoes; and what no row speaks of is told."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard import families
from regard.conversion.hf import match_form
from regard.errors import SpecError
from regard.families.expand import expand_model
from regard.families.published import Key
from regard.families.weight_map import (
    Drop,
    Join,
    Name,
    Tied,
    compute_shapes,
    export_weights,
    find_faults,
    import_weights,
)
from tests.laws.examples import FAMILY

pytestmark = pytest.mark.numeric

ROWS = (
    Name("embed", "wte"),
    Join(("blocks.{}.q", "blocks.{}.k"), "h.{}.qk", transposed=True),
    Name("blocks.{}.up", "h.{}.wi_1", when="blocks.{}.gate"),
    Name("blocks.{}.up", "h.{}.wi"),
    Name("blocks.{}.gate", "h.{}.wi_0"),
    Name("bias", "bias", lead=1),
    Name("head", "lm_head"),
    Tied("lm_head.weight", of="wte.weight"),
    Tied("copy.weight", of="wte.weight", when="head"),
    Drop("h.{}.mask"),
)


def weights(gated: bool, untied: bool, sizes: tuple[int, int, int]) -> dict[str, Tensor]:
    v, d, e = sizes
    shapes = {"embed.weight": (v, d), "bias": (v,)} | ({"head.weight": (v, d)} if untied else {})
    for i in range(2):
        shapes |= {f"blocks.{i}.q.weight": (e, d), f"blocks.{i}.k.weight": (2, d), f"blocks.{i}.up.weight": (3, d)}
        shapes |= {f"blocks.{i}.q.bias": (e,), f"blocks.{i}.k.bias": (2,)}
        shapes |= {f"blocks.{i}.gate.weight": (3, d)} if gated else {}
    return {name: torch.randn(shape) for name, shape in shapes.items()}


@given(st.booleans(), st.booleans(), st.tuples(*[st.integers(1, 5)] * 3))
def test_there_and_back(gated: bool, untied: bool, sizes: tuple[int, int, int]) -> None:
    ours = weights(gated, untied, sizes)
    shapes = {name: tuple(t.shape) for name, t in ours.items()}
    theirs = export_weights(ROWS, ours)
    assert ("h.1.wi_1.weight" in theirs) == gated
    assert ("copy.weight" in theirs) == untied
    assert theirs["bias"].shape == (1, sizes[0])
    assert theirs["h.0.qk.weight"].shape == (sizes[1], sizes[2] + 2)
    assert not find_faults(ROWS, shapes, {name: tuple(t.shape) for name, t in theirs.items()})
    back, wrong = import_weights(ROWS, shapes, theirs)
    assert not wrong
    assert back.keys() == ours.keys()
    assert all(torch.equal(back[name], ours[name]) for name in ours)


def test_what_no_row_speaks_of() -> None:
    with pytest.raises(SpecError, match=r"^the target format has no weight for tail.weight, blocks.0.tail.bias$"):
        compute_shapes(ROWS, {"embed.weight": (2, 2), "tail.weight": (1,), "blocks.0.tail.bias": (1,)})


RECURRENT = ("rnn, lstm", "rnn, gru", "lstm", "lstm, luong", "lstm, both ways", "gru", "gru, bahdanau", "rnnsearch")
"""Hugging Face has no recurrent models that translate."""
CONVOLUTIONAL = ("convs2s", "convs2s-wmt", "bytenet", "bytenet-lm", "neural_gpu", "extended_neural_gpu")
"""Nor has it convolutional ones, or models of active memory."""
STORIES = ("memn2n", "memn2n, layerwise", "memn2n, bag")
"""Nor memory networks."""
OURS = ("transformer", "transformer_xl", "openai-gpt", "vit of means", *RECURRENT, *CONVOLUTIONAL, *STORIES)
"""Of the third, theirs is four times as wide inside; of the fourth, theirs always reads a class token."""


@pytest.mark.parametrize("name", families.forms())
def test_every_word_has_a_way_back(name: str) -> None:
    """A config of ours says the same when it is read."""
    form = families.forms()[name]
    spec = form.build({"architectures": [next(iter(form.uses))]})
    made, _, config = match_form(spec)
    assert (made.kind, made.build(config)) == (name, spec)


def test_every_family_that_others_have_can_go_out() -> None:
    """All examples of the laws but those that are ours alone."""
    for shape in FAMILY.values():
        for name, spec in shape.items():
            if name not in OURS:
                form, use, _ = match_form(spec)
                assert compute_shapes(form.rows(use), spec.build().shapes())


@pytest.mark.parametrize("name", [*RECURRENT, *CONVOLUTIONAL, *STORIES])
def test_what_others_do_not_have_is_refused_in_words(name: str) -> None:
    spec = next(shape[name] for shape in FAMILY.values() if name in shape)
    with pytest.raises(SpecError, match=r"^Hugging Face has no equivalent model"):
        match_form(spec)


def test_the_parts_of_a_refusal_are_named_by_their_kinds() -> None:
    """A hybrid of lists of blocks, which differs in nearly everything, gets one short line."""
    blocks = [{"mix": "lstm"}, {"mix": {"kind": "full", "heads": 2}}]
    parts = {"block": None, "depth": None, "blocks": blocks}
    model = {
        "family": "transformer",
        "width": 8,
        "depth": 2,
        "heads": 2,
        "hidden": 8,
        "encoder": parts,
        "decoder": parts,
    }
    with pytest.raises(SpecError) as refused:
        match_form(expand_model(model, {"vocab": 9}))
    assert "encoder should be None, is stack" in str(refused.value)
    assert len(str(refused.value)) < 400


def test_a_value_without_a_word() -> None:
    key = Key("activation", "a", "act", words={"relu": "relu"})
    with pytest.raises(SpecError, match=r"^act has no value for 'tanh'$"):
        key.write_config({"activation": "tanh"})
