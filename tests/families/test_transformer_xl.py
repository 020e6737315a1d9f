"""Transformer-XL and the Compressive Transformer: their sizes, and the shape of the published model."""

from __future__ import annotations

import pytest
import torch

from regard.errors import UnknownName
from regard.families import transformer_xl
from regard.nn.blocks.wiring import PostNorm, PreNorm
from regard.nn.core.coords import Coords
from regard.nn.mixers import XLMemory
from regard.nn.mixers.compress import Convolution
from regard.nn.positions.relative import Distance

pytestmark = pytest.mark.numeric

SMALL = dict(width=16, depth=2, heads=2, vocab=11, memory_length=8, length=8)


@pytest.mark.parametrize(("size", "millions"), [("xl-enwik8-base", 41), ("xl-enwik8-large", 277)])
def test_as_many_parameters_as_published(size: str, millions: int) -> None:
    with torch.device("meta"):
        count = sum(p.numel() for p in transformer_xl.spec(size).build().parameters())
    assert round(count / 1e6) == millions


def test_the_base_model_is_the_papers() -> None:
    spec = transformer_xl.spec()
    stack = spec.decoder
    block = stack.layers()[0]  # type: ignore[union-attr]
    assert (spec.width, spec.length, len(stack.layers())) == (512, 512, 12)  # type: ignore[union-attr]
    assert block.mix == XLMemory(8, 512, bias=False)
    assert (block.feed.width, block.feed.activation, block.feed.dropout) == (2048, "relu", 0.1)  # type: ignore[union-attr]
    assert stack.wiring == PostNorm(dropout=0.1)  # type: ignore[union-attr]
    assert stack.position == Distance()  # type: ignore[union-attr]


def test_evaluated_with_more_memory_and_a_clamp() -> None:
    """The weights of training fit, and where nothing lies beyond the clamp the numbers agree."""
    net = transformer_xl.spec(**SMALL).build(0).eval()  # type: ignore[arg-type]
    wide = transformer_xl.spec(**SMALL | dict(memory_length=30), clamp=40).build(1).eval()  # type: ignore[arg-type]
    wide.load_state_dict(net.state_dict())
    ids = torch.randint(11, (2, 24))
    state, out = wide.start(2, 0), []
    with torch.no_grad():
        for a in range(0, 24, 6):
            y, state = wide.decode(ids[:, a : a + 6], Coords.span(6, a), state=state)  # type: ignore[assignment]
            out.append(y)
        torch.testing.assert_close(torch.cat(out, 1), net(ids, Coords.span(24)), rtol=0, atol=1e-5)


def test_compressive_is_one_word_more() -> None:
    spec = transformer_xl.spec(**SMALL, compress=Convolution(4, 3), norm="pre")  # type: ignore[arg-type]
    assert spec.decoder.layers()[0].mix == XLMemory(2, 8, Convolution(4, 3), bias=False)  # type: ignore[union-attr]
    assert isinstance(spec.decoder.wiring, PreNorm)  # type: ignore[union-attr]
    net = spec.build()
    assert [n for n, _ in net.named_parameters() if "compressor" in n] == [
        f"decoder.blocks.{i}.mix.compressor.maps.0.weight" for i in range(2)
    ]


def test_an_unknown_norm_placement() -> None:
    with pytest.raises(UnknownName, match=r"^no norm placement 'pst'; did you mean 'post'\?$"):
        transformer_xl.spec(norm="pst")
