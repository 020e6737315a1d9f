"""Adapters: nothing at the start, exactly merged at the end, and only on what was named."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from regard.errors import SpecError
from regard.families import bert, gpt, t5, transformer_xl
from regard.model.net import Net
from regard.nn.core.coords import Coords
from regard.nn.layers.lora import Lora, LoraLinear, adapt, merge_adapters, zero_adapters

pytestmark = pytest.mark.numeric

SMALL = dict(width=16, depth=2, heads=2, vocab=11)
FAMILIES: dict[str, Any] = {
    "gpt": lambda: gpt.spec(**SMALL, length=8),
    "bert": lambda: bert.spec(**SMALL, length=8),
    "xl": lambda: transformer_xl.spec(**SMALL, memory_length=4, length=8),
}


def made(family: str) -> Net:
    return FAMILIES[family]().build(1).double().eval()  # type: ignore[no-any-return]


def shaken(net: nn.Module) -> None:
    """Adapters that have learned something."""
    torch.manual_seed(3)
    with torch.no_grad():
        for part in net.modules():
            if isinstance(part, LoraLinear):
                part.up.normal_()


def logits(net: Net) -> torch.Tensor:
    ids = torch.arange(12).view(2, 6) % 11
    return net.logits(net(ids, Coords.span(6)))  # type: ignore[no-any-return]


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_zero_at_the_start_and_merged_exactly(family: str) -> None:
    net, plain = made(family), made(family)
    names = adapt(net, Lora(rank=3, targets=("q", "v", "*.feed.*")))
    assert torch.equal(logits(net), logits(plain)), "an adapted model begins as the model it was"
    shaken(net)
    told = logits(net)
    assert float((told - logits(plain)).abs().max()) > 1e-3, "the adapters do something"
    weights = merge_adapters(net)
    assert list(weights) == list(plain.state_dict()), "no name of an adapter is left"
    plain.load_weights(weights)
    assert float((logits(plain) - told).abs().max()) <= 1e-12
    net.load_weights(weights | zero_adapters(net))
    assert torch.equal(logits(net), logits(plain)), "merged weights under blank adapters are the merged model"
    assert sum(p.numel() for n, p in net.named_parameters() if n in names) < 0.5 * sum(
        p.numel() for p in plain.parameters()
    )


@torch.no_grad()
def test_an_encoder_decoder_and_one_pattern() -> None:
    net = t5.spec(width=16, depth=1, heads=2, hidden=32, vocab=11).build(1)
    names = adapt(net, Lora(rank=2, targets=("decoder.*.cross.k",)))
    assert names == ["decoder.blocks.0.cross.k.down", "decoder.blocks.0.cross.k.up"]
    out, into = net.shapes()["decoder.blocks.0.cross.k.weight"]
    assert [net.shapes()[name] for name in names] == [(2, into), (out, 2)]


def test_the_scale_is_alpha_over_rank() -> None:
    linear = nn.Linear(5, 4, dtype=torch.float64)
    part = LoraLinear(linear, Lora(rank=2, alpha=6.0))
    nn.init.normal_(part.up)
    x = torch.randn(3, 5, dtype=torch.float64)
    want = linear(x) + 3.0 * x @ part.down.T @ part.up.T
    torch.testing.assert_close(part(x), want, rtol=0, atol=1e-13)
    torch.testing.assert_close(part(x), x @ part.merge().T + linear.bias, rtol=0, atol=1e-13)


def test_dropout_is_before_the_adapter_alone_and_in_training_alone() -> None:
    part = LoraLinear(nn.Linear(400, 400), Lora(rank=400, alpha=100.0, dropout=0.5))
    with torch.no_grad():
        part.weight.zero_()
        part.bias.zero_()
        part.down.copy_(torch.eye(400))
        part.up.copy_(torch.eye(400))
    x = torch.ones(1, 400)
    assert torch.equal(part.eval()(x), 0.25 * x)
    assert set(part.train()(x).unique().tolist()) == {0.0, 0.5}
    with torch.no_grad():
        part.weight.copy_(torch.eye(400))
    assert set(part(x).unique().tolist()) == {1.0, 1.5}, "what goes through the weight is whole"


def test_nothing_is_dropped_of_distances() -> None:
    """Attention in tiles makes them anew for every tile, and once more for gradients."""
    net = made("xl")
    adapt(net, Lora(targets=("q", "r"), dropout=0.5))
    drops = {
        name.rpartition(".")[2]: part.dropout.p for name, part in net.named_modules() if isinstance(part, LoraLinear)
    }
    assert drops == {"q": 0.5, "r": 0.0}


def test_a_map_that_is_not_there() -> None:
    said = r"^no linear layer of this model matches 'query' \(lora\.targets\); available: q, k, v, out, up, down$"
    with pytest.raises(SpecError, match=said):
        adapt(made("gpt"), Lora(targets=("q", "query")))


def test_heads_are_left_alone() -> None:
    with pytest.raises(SpecError, match="no linear layer of this model matches 'dense'"):
        adapt(made("bert"), Lora(targets=("dense",)))
