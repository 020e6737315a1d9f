from __future__ import annotations

import pytest
import torch

from regard.errors import ShapeError, SpecError
from regard.families import gpt, transformer
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.head import Vocab
from regard.nn.core.coords import Coords
from regard.nn.mixers import Full

pytestmark = pytest.mark.numeric

GPT = gpt.spec(width=8, depth=1, heads=2, vocab=11, length=6, dropout=0.0)
BOTH = transformer.spec(width=8, depth=1, heads=2, vocab=11, length=6, dropout=0.0)
BERT = ModelSpec(8, 6, Tokens(11), encoder=Stack(Block(mix=Full(2)), depth=1))
AT = Coords.span(4)


def ids(rows: int = 2, n: int = 4) -> torch.Tensor:
    return torch.randint(11, (rows, n))


def test_a_model_of_two_sides_decodes_what_it_encoded() -> None:
    net = BOTH.build().eval()
    source, target = ids(), ids()
    memory = net.encode(source, AT)
    assert memory.keys is memory.values
    assert torch.equal(net(target, AT, (source, AT)), net.decode(target, AT, memory)[0])


def test_an_encoder_alone_is_its_own_stream() -> None:
    net, tokens = BERT.build().eval(), ids()
    assert torch.equal(net(tokens, AT), net.encode(tokens, AT).keys)
    assert net.logits(net(tokens, AT)).shape == (2, 4, 11)


def test_a_source_embedding_is_the_encoders() -> None:
    net = transformer.spec(width=8, depth=1, heads=2, vocab=11, source_vocab=5, length=6).build().eval()
    assert net.source is not None
    net(ids(), AT, (torch.full((2, 4), 4), AT)).sum().backward()
    assert net.source.weight.grad is not None
    assert (net.source.weight.grad[4] != 0).any()
    with pytest.raises(IndexError):
        net.encode(torch.full((2, 4), 5), AT)


def test_the_loss_is_that_of_the_logits() -> None:
    net, tokens, target = GPT.build().double(), ids(), ids()
    target[0, 2] = -100
    stream = net(tokens, AT)
    loss, plain = net.loss(stream, target, 0.1)
    flat = net.logits(stream).flatten(0, 1), target.flatten()
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(*flat, label_smoothing=0.1, reduction="sum"))
    torch.testing.assert_close(plain, torch.nn.functional.cross_entropy(*flat, reduction="sum"))


def test_a_tied_head_trains_the_table_from_both_ends() -> None:
    net, tokens = GPT.build().double(), ids(1)
    table = net.embed.weight
    loss, _ = net.loss(net(tokens, AT), tokens)
    (grad,) = torch.autograd.grad(loss, table)
    absent = sorted(set(range(11)) - set(tokens.flatten().tolist()))
    assert (grad[absent].abs().sum(1) > 0).all()  # only the head reads these rows
    untied = GPT.replace("head", Vocab(tied=False)).build()
    assert [n for n, _ in untied.named_parameters() if n.startswith("head")] == ["head.weight"]


def test_the_device_is_that_of_the_weights() -> None:
    assert GPT.build().device.type == "cpu"
    assert GPT.build().to("meta").device.type == "meta"


class TestRefusals:
    def test_no_encoder(self) -> None:
        with pytest.raises(SpecError, match=r"^this model has no encoder$"):
            GPT.build().encode(ids(), AT)

    def test_no_second_head(self) -> None:
        net = BERT.build()
        with pytest.raises(SpecError, match=r"^this model has only one head; set `beside` for a second one$"):
            net.logits_beside(net(ids(), AT), AT)

    def test_no_decoder(self) -> None:
        net = BERT.build()
        with pytest.raises(SpecError, match=r"^this model has no decoder$"):
            net.decode(ids(), AT)
        with pytest.raises(SpecError, match=r"^this model has no decoder$"):
            net.start(1, 4)

    def test_no_source(self) -> None:
        said = r"^decoder.blocks.0.cross attends to a memory, and none was given; give the model a source$"
        with pytest.raises(SpecError, match=said):
            BOTH.build()(ids(), AT)

    def test_longer_than_its_positions(self) -> None:
        said = r"^embed.position has 6 positions, asked for 7; shorten the input or raise the length$"
        with pytest.raises(ShapeError, match=said):
            GPT.build()(ids(n=7), Coords.span(7))
