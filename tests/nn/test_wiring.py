"""Wirings that leave out one thing: each equals the whole one where that thing does nothing."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.wiring import Bare, NormOnly, PostNorm, PreNorm, ResidualOnly, WiringSpec
from regard.nn.core.context import Context
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import Site
from regard.nn.layers.feedforward import FeedForward
from regard.nn.mixers import Full, Lsh

pytestmark = pytest.mark.numeric


def run(wiring: WiringSpec, x: torch.Tensor) -> tuple[torch.Tensor, nn.Module]:
    torch.manual_seed(3)
    body = Stack(Block(mix=Full(2), feed=FeedForward(12)), depth=2, wiring=wiring).build(Site("encoder", 8, 16))
    for norm in (part for part in body.modules() if isinstance(part, nn.LayerNorm)):
        nn.init.ones_(norm.weight)
    return body(x, Context(Coords.span(5)))[0], body


def test_without_the_norm_it_is_pre_norm_with_identities() -> None:
    x = torch.randn(2, 5, 8)
    bare, body = run(ResidualOnly(), x)
    assert not [name for name, _ in body.named_parameters() if "norm" in name]
    _, whole = run(PreNorm(), x)
    whole.load_state_dict(body.state_dict(), strict=False)
    for name in [name for name, _ in whole.named_modules()]:
        if name.endswith("norm"):
            whole.set_submodule(name, nn.Identity())
    torch.testing.assert_close(whole(x, Context(Coords.span(5)))[0], bare)


def test_without_the_residual_the_input_is_lost_where_a_sublayer_is_zero() -> None:
    x = torch.randn(2, 5, 8)
    _, body = run(NormOnly(), x)
    _, whole = run(PostNorm(), x)
    assert dict(body.state_dict()).keys() == dict(whole.state_dict()).keys()
    for part in (body, whole):
        for name, weight in part.named_parameters():
            if "norm" not in name:
                nn.init.zeros_(weight)
    at = Context(Coords.span(5))
    assert not body(x, at)[0].any()
    assert whole(x, at)[0].any()


@pytest.mark.parametrize("wiring", [Bare(), NormOnly()])
def test_a_mixer_whose_tokens_do_not_see_themselves_needs_a_residual(wiring: WiringSpec) -> None:
    stack = Stack(Block(mix=Lsh(2, chunk=4, buckets=4)), depth=1, wiring=wiring)
    (said,) = stack.refusals(Site("encoder", 8, 16))
    assert "a token does not see itself there, and wiring" in said
    assert "use 'pre_norm' or 'post_norm'" in said
    assert not Stack(Block(mix=Lsh(2, chunk=4, buckets=4)), depth=1, wiring=PreNorm()).refusals(Site("encoder", 8, 16))
