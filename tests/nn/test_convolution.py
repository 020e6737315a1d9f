"""Convolutions against torch's own, how far they reach, and what their bodies refuse."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.decode import Request, Search, SpecialTokens, generate
from regard.decode.scoring import find_cross_attention
from regard.errors import SpecError
from regard.families import bytenet, convs2s
from regard.model.build import refusals
from regard.model.cost import cost
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.body import BodySpec
from regard.nn.blocks.dilated_convolutions import DilatedConvolutions
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.gated_convolutions import GatedConvolutions, scale_gradient
from regard.nn.blocks.head import Vocab
from regard.nn.core.context import Context
from regard.nn.core.coords import Coords
from regard.nn.layers.convolution import TokenConvolution, WeightNormLinear

pytestmark = pytest.mark.numeric

SPECIAL = SpecialTokens(bos=1, eos=2, pad=0)
CLOSE = {torch.float32: 1e-6, torch.float64: 1e-10}


def both(x: Tensor, conv: TokenConvolution, at: Coords) -> list[list[Tensor]]:
    """Output and gradients of ours, and of torch's convolution of each row."""
    weight = conv.linear.weight.unflatten(1, (conv.kernel, -1)).permute(0, 2, 1)  # type: ignore[no-untyped-call]
    left = -conv.offsets[0]
    rows = []
    for row, kept in zip(x, at.kept.expand(x.shape[0], -1), strict=True):
        padded = F.pad(row[kept].mT, (left, conv.reach - left))
        y = F.conv1d(padded.unsqueeze(0), weight, conv.linear.bias, dilation=conv.dilation)[0].mT
        rows.append(y)
    theirs, ours = torch.cat(rows), conv(x, Context(at))[0][at.kept.expand(x.shape[0], -1)]
    pull = torch.linspace(-1, 1, ours.numel(), dtype=x.dtype).view_as(ours)
    inputs = [x, conv.linear.weight, conv.linear.bias]
    return [[y, *torch.autograd.grad((y * pull).sum(), inputs, retain_graph=True)] for y in (ours, theirs)]


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "both ways"])
@pytest.mark.parametrize(("kernel", "dilation"), [(1, 1), (2, 1), (3, 1), (3, 4), (5, 2)])
@pytest.mark.parametrize("padding", ["none", "right", "left"])
def test_convolutions_are_those_of_torch(
    dtype: torch.dtype, causal: bool, kernel: int, dilation: int, padding: str
) -> None:
    torch.manual_seed(0)
    conv = TokenConvolution(nn.Linear(kernel * 3, 4), kernel, dilation, causal=causal).to(dtype)
    at = Coords.span(9) if padding == "none" else Coords.lengths([9, 4], left=padding == "left")
    ours, theirs = both(torch.randn(2, 9, 3, dtype=dtype, requires_grad=True), conv, at)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=CLOSE[dtype], atol=CLOSE[dtype])


def test_weight_normalization_is_that_of_torch() -> None:
    torch.manual_seed(0)
    ours, x = WeightNormLinear(4, 3).double(), torch.randn(2, 4, dtype=torch.double)
    theirs = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3).double())
    with torch.no_grad():
        ours.gain.normal_()
        theirs.parametrizations.weight.original0.copy_(ours.gain.unsqueeze(1))
        theirs.parametrizations.weight.original1.copy_(ours.weight)
        theirs.bias.copy_(ours.bias)
    torch.testing.assert_close(ours(x), theirs(x), rtol=0, atol=1e-12)
    mine = torch.autograd.grad(ours(x).sin().sum(), [ours.gain, ours.weight])
    other = torch.autograd.grad(theirs(x).sin().sum(), list(theirs.parametrizations.weight.parameters()))
    torch.testing.assert_close(mine[0], other[0].squeeze(1), rtol=0, atol=1e-12)
    torch.testing.assert_close(mine[1], other[1], rtol=0, atol=1e-12)
    with torch.no_grad():
        ours.set_gain()
    torch.testing.assert_close(ours(x), F.linear(x, ours.weight, ours.bias), rtol=0, atol=1e-12)


@pytest.mark.parametrize("causal", [True, False], ids=["decoder", "encoder"])
@pytest.mark.parametrize(("kernel", "dilations"), [(3, (1, 2, 4)), (2, (1, 2, 4, 8)), (3, (1, 2, 1, 2)), (1, (1, 1))])
def test_the_receptive_field_is_exact(causal: bool, kernel: int, dilations: tuple[int, ...]) -> None:
    """1 + (k − 1) · Σ dilations tokens have a gradient, those next to them none."""
    spec = DilatedConvolutions(dilations, kernel, causal=causal)
    reach, n = (kernel - 1) * sum(dilations), 41
    sides: dict[str, Any] = {"decoder" if causal else "encoder": spec}
    net = ModelSpec(8, n, Tokens(5), **sides, head=Vocab(False)).build(1).double()
    body = net.decoder if causal else net.encoder
    assert body is not None
    x = torch.randn(1, n, 8, dtype=torch.double, requires_grad=True)
    (grad,) = torch.autograd.grad(body(x, Context(Coords.span(n)))[0][0, 25].sin().sum(), x)
    seen = grad[0].abs().amax(1).nonzero().squeeze(1).tolist()
    before = reach if causal else sum((kernel - 1) // 2 * d for d in dilations)
    assert seen == list(range(25 - before, 25 - before + reach + 1))
    assert len(seen) == spec.receptive_field == 1 + reach


def test_gradients_of_the_encoder_are_divided_by_its_readers() -> None:
    x = torch.ones(2, requires_grad=True)
    assert torch.autograd.grad(scale_gradient(x, 0.25).sum(), x)[0].tolist() == [0.25, 0.25]
    net = convs2s.spec(width=6, embedding=4, depth=3, vocab=11, dropout=0.0, length=20).build(0)
    memory = net.encode(torch.tensor([[3, 4, 5]]), Coords.span(3))
    first = net.embed(torch.tensor([[3, 4, 5]]), Coords.span(3))
    torch.testing.assert_close(memory.values, (memory.keys + first) * 0.5**0.5)
    inner = net.encoder(first, Context(Coords.span(3)))[0]  # type: ignore[misc]
    leave = net.encoder.leave.bias  # type: ignore[union-attr]
    whole, third = torch.autograd.grad(inner.sum(), leave), torch.autograd.grad(memory.keys.sum(), leave)  # type: ignore[arg-type]
    torch.testing.assert_close(third[0] * 3, whole[0])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: GatedConvolutions((4,), (3, 3)),
            "widths and kernels need one entry per layer, got 1 widths and 2 kernels",
        ),
        (
            lambda: GatedConvolutions((4,), (3,), attention=True),
            "attention reads an encoder, which is for a decoder; set causal: true",
        ),
        (lambda: DilatedConvolutions((1 << 17,)), "dilations.0: .*65536.*"),
        (lambda: DilatedConvolutions(()), "dilations needs one entry per block, got none"),
        (
            lambda: DilatedConvolutions((1,), stacked=True),
            "stacked reads an encoder, which is for a decoder; set causal: true",
        ),
    ],
)
def test_settings_that_do_not_fit(make: Any, said: str) -> None:
    with pytest.raises(SpecError, match=f"^{said}$"):
        make()


@pytest.mark.parametrize(
    ("encoder", "decoder", "said"),
    [
        (
            GatedConvolutions((4,), (3,), out=6), GatedConvolutions((4,), (3,), attention=True, causal=True),
            "decoder adds embeddings of width 7 to queries for keys of width 6; make them equal",
        ),
        (
            GatedConvolutions((4,), (3,), out=6), GatedConvolutions((4,), (3,), attention=True, causal=True),
            "encoder.out is 6, and is added to embeddings of width 7; leave it out",
        ),
        (
            GatedConvolutions((4,), (3,), out=6), DilatedConvolutions((1,), stacked=True, causal=True),
            "decoder of width 7 is stacked on an encoder of width 6; make them equal",
        ),
        (
            None, DilatedConvolutions((1,), causal=True),
            "decoder has blocks half as wide as the stream, whose width is 7; make it even",
        ),
        (
            None, DilatedConvolutions((1,), stacked=True, causal=True),
            "decoder attends to an encoder, and there is none before it",
        ),
    ],
)  # fmt: skip
def test_bodies_that_do_not_fit(encoder: BodySpec | None, decoder: BodySpec, said: str) -> None:
    assert said in refusals(ModelSpec(7, 12, Tokens(11), encoder, decoder, head=Vocab(False)))


@pytest.mark.parametrize(
    "spec",
    [
        convs2s.spec(width=6, embedding=8, depth=2, vocab=11, dropout=0.0, length=20),
        bytenet.spec(width=4, depth=3, max_dilation=2, vocab=11, dropout=0.0, length=20),
    ],
    ids=["convs2s", "bytenet"],
)
class TestUse:
    def test_searches(self, spec: ModelSpec) -> None:
        """A beam of one sentence is that of a batch, and an ensemble of two equal models is the one."""
        net, sources = spec.build(1).double().eval(), [[4, 5, 6, 2], [7, 2], [3, 9, 8, 8, 5, 2]]
        for beam in (1, 3):
            search = Search(beam=beam, max_length=8)
            together = generate([net], Request(sources, search, SPECIAL))
            alone = [generate([net], Request([source], search, SPECIAL))[0] for source in sources]
            twice = generate([net, net], Request(sources, search, SPECIAL))
            for a, b, c in zip(together, alone, twice, strict=True):
                assert a[0].tokens == b[0].tokens == c[0].tokens
                assert a[0].log_prob == pytest.approx(b[0].log_prob, abs=1e-9)

    def test_alignments(self, spec: ModelSpec) -> None:
        found = find_cross_attention(spec.build().eval(), SPECIAL)
        wanted = [f"decoder.blocks.{i}.cross.weights" for i in range(2)]
        assert found == (wanted if isinstance(spec.decoder, GatedConvolutions) else [])

    def test_costs(self, spec: ModelSpec) -> None:
        net = spec.build()
        assert net.decoder is not None
        maps = sum(p.numel() for p in net.decoder.parameters() if p.dim() == 2)
        assert 2 * maps <= cost(net.decoder, 4).flops <= 3 * maps
        assert cost(net.decoder, 4).state == sum(b.conv.reach * b.conv.read for b in net.decoder.blocks) / 4  # type: ignore[union-attr]
