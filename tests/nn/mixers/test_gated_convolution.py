"""Gated convolutions against torch's own, with gradients, and how far layers of them see."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.model.model_spec import ModelSpec
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.core.context import Context
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import Site
from regard.nn.mixers import GatedConvolution
from regard.nn.mixers.gated_convolution import GatedConvolutionMixer

pytestmark = pytest.mark.numeric

TOLERANCE = {torch.double: 1e-10, torch.float: 1e-6}


def convolve(x: Tensor, weight: Tensor, bias: Tensor, spec: GatedConvolution, causal: bool) -> Tensor:
    """The same with torch's convolution."""
    kernel = weight.unflatten(1, (spec.kernel, -1)).mT  # type: ignore[no-untyped-call]
    reach = (spec.kernel - 1) * spec.dilation
    before = reach if causal else (spec.kernel - 1) // 2 * spec.dilation
    padded = F.pad(x.mT, (before, reach - before))
    return F.glu(F.conv1d(padded, kernel, bias, dilation=spec.dilation), 1).mT


@pytest.mark.parametrize("dtype", TOLERANCE, ids=["double", "single"])
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "both sides"])
@pytest.mark.parametrize("spec", [GatedConvolution(), GatedConvolution(5, 2), GatedConvolution(1)], ids=str)
def test_equals_torch(spec: GatedConvolution, causal: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    mixer = spec.build(Site("mix", 6, 12, causal=causal)).to(dtype)
    assert isinstance(mixer, GatedConvolutionMixer)
    x, linear = torch.randn(3, 12, 6, dtype=dtype, requires_grad=True), mixer.conv.linear
    into = [x, linear.weight, linear.bias]
    y, _ = mixer(x, Context(Coords.span(12)))
    theirs = convolve(x, linear.weight, linear.bias, spec, causal)
    torch.testing.assert_close(y, theirs, rtol=0, atol=TOLERANCE[dtype])
    grad = torch.randn_like(y)
    for mine, other in zip(*(torch.autograd.grad(out, into, grad) for out in (y, theirs)), strict=True):
        assert (mine - other).abs().max() <= TOLERANCE[dtype] * max(other.abs().max(), 1)


def test_layers_see_as_far_as_their_windows_reach() -> None:
    """1 + (k − 1)·Σ dilations tokens."""
    dilations, n = (1, 2, 4), 20
    blocks = tuple(Block(mix=GatedConvolution(3, r)) for r in dilations)
    net = ModelSpec(8, n, Tokens(10), decoder=Stack(blocks=blocks, causal=True)).build(1).double()
    x = torch.randn(1, n, 8, dtype=torch.double, requires_grad=True)
    assert net.decoder is not None
    y, _ = net.decoder(x, Context(Coords.span(n)))
    seen = torch.autograd.grad((y[0, -1] * torch.arange(8)).sum(), x)[0][0].abs().sum(-1) > 0
    assert seen.sum() == 1 + 2 * sum(dilations)
    assert seen[-15:].all()
