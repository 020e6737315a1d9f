"""The builder's refusals, and its seeds. What mixers cannot do is in `tests/laws/test_refusal.py`."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard.errors import SpecError, UnknownName
from regard.families import bert, llama, transformer
from regard.model.build import refusals
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.core.coords import Coords
from regard.nn.mixers import Full

pytestmark = pytest.mark.numeric

ALONE, ACROSS = Block(mix=Full(2)), Block(mix=Full(2), cross=Full(2))


def model(**parts: Any) -> ModelSpec:
    return ModelSpec(width=8, length=12, embed=Tokens(11), **parts)


def stack(block: Block, causal: bool = False) -> Stack:
    return Stack(block, depth=2, causal=causal)


GOOD = {
    "decoder only": model(decoder=stack(ALONE, True)),
    "encoder only": model(encoder=stack(ALONE)),
    "causal encoder": model(encoder=stack(ALONE, True)),
    "both": model(encoder=stack(ALONE), decoder=stack(ACROSS, True)),
    "two vocabularies": model(encoder=stack(ALONE), decoder=stack(ACROSS, True), source=Tokens(7)),
    "some blocks look across": model(encoder=stack(ALONE), decoder=Stack(blocks=(ALONE, ACROSS), causal=True)),
}


@pytest.mark.parametrize("name", GOOD)
def test_what_makes_sense_is_built(name: str) -> None:
    assert refusals(GOOD[name]) == []
    GOOD[name].build()


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (model(decoder=stack(ALONE)), ["a decoder writes from left to right; set decoder.causal"]),
        (
            model(encoder=stack(ALONE), decoder=stack(ALONE, True)),
            ["the decoder never looks at the encoder; give a block a `cross` mixer or drop the encoder"],
        ),
        (
            model(decoder=stack(ACROSS, True)),
            [f"decoder.blocks.{i}.cross attends to an encoder, and there is none before it" for i in range(2)],
        ),
        (
            model(encoder=stack(ACROSS)),
            [f"encoder.blocks.{i}.cross attends to an encoder, and there is none before it" for i in range(2)],
        ),
    ],
)
def test_what_does_not_is_refused(spec: ModelSpec, said: list[str]) -> None:
    assert refusals(spec) == said
    with pytest.raises(SpecError) as error:
        spec.build()
    assert str(error.value) == "; ".join(said)


def test_a_model_of_nothing() -> None:
    with pytest.raises(SpecError, match=r"^a model needs an encoder, a decoder or both"):
        model()


@pytest.mark.parametrize("side", [{"decoder": stack(ALONE, True)}, {"encoder": stack(ALONE)}])
def test_a_source_without_two_sides(side: dict[str, Stack]) -> None:
    said = r"^`source` is the encoder's embedding in an encoder-decoder; this model has one side only"
    with pytest.raises(SpecError, match=said):
        model(source=Tokens(5), **side)


def test_an_unknown_initialisation() -> None:
    with pytest.raises(UnknownName, match=r"^no initialization 'xavir'; did you mean 'xavier'\?$"):
        model(decoder=stack(ALONE, True), init="xavir").build()


class TestSeeds:
    spec = GOOD["both"]

    def weights(self, seed: int | None) -> torch.Tensor:
        return torch.cat([p.detach().flatten() for p in self.spec.build(seed).parameters()])

    def test_the_same_gives_the_same_weights(self) -> None:
        assert torch.equal(self.weights(3), self.weights(3))
        assert not torch.equal(self.weights(3), self.weights(4))

    def test_one_of_its_own_leaves_torchs_alone(self) -> None:
        before = torch.get_rng_state()
        self.weights(3)
        assert torch.equal(torch.get_rng_state(), before)

    def test_none_draws_from_torchs(self) -> None:
        torch.manual_seed(3)
        drawn = self.weights(None)
        assert torch.equal(drawn, self.weights(3))
        assert not torch.equal(drawn, self.weights(None))


def test_a_source_may_share_the_table() -> None:
    both = dict(encoder=stack(ALONE), decoder=stack(ACROSS, True))
    spec = model(**both, source=Tokens(11, tied=True, scaled=True))
    net = spec.build(0).eval()
    assert "source.weight" not in net.shapes()
    ids, at = torch.randint(11, (2, 5)), Coords.span(5)
    plain = ModelSpec(8, 12, Tokens(11), **both, source=Tokens(11, scaled=True)).build(1).eval()
    plain.load_state_dict(net.state_dict() | {"source.weight": net.embed.weight})
    assert torch.equal(net(ids, at, (ids, at)), plain(ids, at, (ids, at)))


def test_a_table_can_only_be_shared_with_one_that_is_there() -> None:
    both = dict(encoder=stack(ALONE), decoder=stack(ACROSS, True))
    alone = ModelSpec(width=8, length=12, embed=Tokens(11, tied=True), decoder=stack(ALONE, True))
    assert refusals(alone) == [
        "embed.tied shares the table of an embedding of tokens, and there is no other; set it for `source`"
    ]
    assert refusals(model(**both, source=Tokens(7, tied=True))) == [
        "source shares a table of 11 tokens and asks for 7; set source.vocab or leave out tied"
    ]


def test_weights_that_do_not_fit_are_all_named() -> None:
    spec = GOOD["both"]
    weights = spec.build(0).state_dict()
    weights["embed.weight"] = torch.ones(spec.width)  # it would be one row for all tokens
    weights["x.y"] = torch.ones(1)
    with pytest.raises(SpecError) as caught:
        spec.build_with(weights)
    assert "embed.weight should be (" in str(caught.value) and "x.y is not part of this model" in str(caught.value)


@pytest.mark.parametrize("change", [{"classes": 0}, {"depth": 0}])
def test_nothing_is_not_taken_for_the_usual(change: dict[str, int]) -> None:
    with pytest.raises(SpecError):
        bert.spec(width=8, heads=2, hidden=8, vocab=7, **change)
    with pytest.raises(SpecError):
        transformer.spec(width=8, depth=1, heads=2, hidden=8, vocab=7, decoder_depth=0)
    with pytest.raises(SpecError):
        llama.spec(width=8, depth=1, heads=2, hidden=8, vocab=7, kv_heads=0)
