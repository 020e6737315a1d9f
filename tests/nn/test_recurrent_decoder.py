"""What a recurrent decoder refuses, starts from and shows."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from regard.decode import Request, Search, SpecialTokens, generate
from regard.decode.scoring import find_cross_attention
from regard.errors import SpecError
from regard.families import gru, lstm
from regard.model.build import refusals
from regard.model.cost import cost
from regard.model.model_spec import ModelSpec
from regard.nn.attention.source_attention import SourceAttention
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.head import Vocab
from regard.nn.blocks.recurrent_decoder import RecurrentDecoder
from regard.nn.blocks.wiring import Bare
from regard.nn.core.context import Memory
from regard.nn.core.coords import Coords
from regard.nn.mixers import GRU, LSTM, Full

pytestmark = pytest.mark.numeric

SPECIAL = SpecialTokens(bos=1, eos=2, pad=0)
SMALL: dict[str, Any] = dict(width=8, embedding=6, vocab=11, length=20, dropout=0.0)


def model(encoder: Stack, decoder: RecurrentDecoder) -> ModelSpec:
    return ModelSpec(8, 12, Tokens(11), encoder, decoder, head=Vocab(tied=False))


def recurrent(depth: int = 1, **cell: Any) -> Stack:
    return Stack(Block(mix=LSTM(**cell)), depth=depth, wiring=Bare())


class TestRefusals:
    def test_no_final_states(self) -> None:
        spec = model(Stack(Block(mix=Full(2)), depth=1), RecurrentDecoder(LSTM()))
        said = (
            "decoder starts from the last states of an encoder, and this one has no recurrent layers; "
            "set decoder.start: zeros"
        )
        assert refusals(spec) == [said]
        assert refusals(spec.replace("decoder.start", "zeros")) == []

    def test_other_layers(self) -> None:
        said = (
            "decoder has 2 layers that start from those of the encoder, which has 1, or other cells; make them equal, "
            "or set decoder.start: map"
        )
        assert refusals(model(recurrent(), RecurrentDecoder(LSTM(), depth=2))) == [said]
        assert refusals(model(recurrent(2), RecurrentDecoder(GRU(), depth=2)))
        assert refusals(model(recurrent(), RecurrentDecoder(GRU(), depth=2, start="map"))) == []

    def test_other_widths(self) -> None:
        said = "decoder has states of width 8, and the encoder's are 6 wide; make them equal, or set decoder.start: map"
        assert refusals(model(recurrent(width=6), RecurrentDecoder(LSTM()))) == [said]

    def test_no_encoder(self) -> None:
        spec = dataclasses.replace(model(recurrent(), RecurrentDecoder(LSTM())), encoder=None)
        assert refusals(spec) == ["decoder attends to an encoder, and there is none before it"]

    @pytest.mark.parametrize(
        ("dials", "said"),
        [
            ({"cell": Full(2)}, "cell should be a recurrent layer that reads forward: rnn, gru or lstm"),
            (
                {"cell": LSTM(bidirectional=True)},
                "cell should be a recurrent layer that reads forward: rnn, gru or lstm",
            ),
            (
                {"attention": "dot", "context": True},
                "`context` is for a decoder without attention; leave out one of them",
            ),
            ({"input_feeding": True}, "input_feeding needs attention after the step; set attention and attend: after"),
        ],
    )
    def test_settings(self, dials: dict[str, Any], said: str) -> None:
        with pytest.raises(SpecError, match=f"^{said}$"):
            RecurrentDecoder(**dials)

    def test_a_dot_product_of_different_widths(self) -> None:
        said = r"^attention 'dot' needs states as wide as the memory \(6\), got 8; use 'general'$"
        with pytest.raises(SpecError, match=said):
            model(recurrent(width=6), RecurrentDecoder(LSTM(), attention="dot", start="zeros")).build()

    def test_a_memory_of_somebody_else(self) -> None:
        net, keys = model(recurrent(), RecurrentDecoder(LSTM())).build(), torch.zeros(1, 3, 8)
        with pytest.raises(SpecError, match=r"^the memory has no final states of recurrent layers"):
            net.decode(torch.zeros(1, 2, dtype=torch.long), Coords.span(2), Memory(keys, keys, Coords.span(3)))
        with pytest.raises(SpecError, match=r"^decoder reads a memory, and none was given; give the model a source$"):
            net.decode(torch.zeros(1, 2, dtype=torch.long), Coords.span(2))


def test_a_reversed_source_is_the_source_read_backwards() -> None:
    """The end mark included; the memory stays in the order of the tokens."""
    spec = lstm.spec(**SMALL, depth=2)
    assert isinstance(spec.encoder, Stack)
    forward = [block.replace("mix.reverse", False) for block in spec.encoder.blocks]
    ways = [spec.build(3), dataclasses.replace(spec, encoder=spec.encoder.replace("blocks", tuple(forward))).build(3)]
    ids = torch.randint(11, (2, 5))
    with torch.no_grad():
        one, other = ways[0].encode(ids, Coords.span(5)), ways[1].encode(ids.flip(1), Coords.span(5))
        torch.testing.assert_close(one.keys, other.keys.flip(1))
        padded = torch.cat([ids, torch.zeros(2, 2, dtype=torch.long)], 1)
        short = ways[0].encode(padded, Coords(torch.tensor([[0, 1, 2, 3, 4, -1, -1]] * 2), first=0, padded=True))
    for a, b, c in zip(*(m.final.flat().values() for m in (one, other, short)), strict=True):  # type: ignore[union-attr]
        torch.testing.assert_close(a, b)
        torch.testing.assert_close(a, c)


@pytest.mark.parametrize(
    "spec",
    [
        lstm.spec(**SMALL, depth=2),
        lstm.spec(**SMALL, depth=2, attention="general"),
        gru.spec("gru-multi30k", **SMALL),
        gru.spec(**SMALL),
    ],
    ids=["lstm", "luong", "gru", "bahdanau"],
)
class TestUse:
    def test_searches(self, spec: ModelSpec) -> None:
        """Greedy is the best token at each step, a beam of one sentence is that of a batch, an ensemble of one is the one."""
        net, sources = spec.build(1).double().eval(), [[4, 5, 6, 2], [7, 2], [3, 9, 8, 8, 5, 2]]
        for beam in (1, 3):
            search = Search(beam=beam, max_length=8)
            together = generate([net], Request(sources, search, SPECIAL))
            alone = [generate([net], Request([source], search, SPECIAL))[0] for source in sources]
            twice = generate([net, net], Request(sources, search, SPECIAL))
            for a, b, c in zip(together, alone, twice, strict=True):
                assert a[0].tokens == b[0].tokens == c[0].tokens
                assert a[0].log_prob == pytest.approx(b[0].log_prob, abs=1e-9)
                assert a[0].log_prob == pytest.approx(c[0].log_prob, abs=1e-9)

    def test_alignments(self, spec: ModelSpec) -> None:
        decoder = spec.decoder
        assert isinstance(decoder, RecurrentDecoder)
        found = find_cross_attention(spec.build().eval(), SPECIAL)
        assert found == ([] if decoder.attention is None else ["decoder.cross.weights"])

    def test_costs(self, spec: ModelSpec) -> None:
        """As many multiply-adds as weights are used a token, and the products of attention."""
        net, n = spec.build(), 4
        assert net.decoder is not None
        maps = sum(p.numel() for name, p in net.decoder.named_parameters() if p.dim() == 2 and "initial" not in name)
        found = cost(net.decoder, n)
        assert 2 * maps <= found.flops <= 2.5 * maps
        layers = 2 * 2 if isinstance(spec.decoder.cell, LSTM) else 1  # type: ignore[union-attr]
        assert found.state == layers * 8 / n


def test_products_with_the_source_count_with_or_without_a_map() -> None:
    assert SourceAttention("dot", 8, 8).flops(5) == SourceAttention("general", 8, 8).flops(5) == 2 * 5 * 8
