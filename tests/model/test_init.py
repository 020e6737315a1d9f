"""Initial scales, by name; GPT-2's own are in `tests/families/test_gpt.py`."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from regard.model.init import SCHEMES
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.head import Vocab
from regard.nn.layers.feedforward import FeedForward
from regard.nn.layers.norm import RMSNorm
from regard.nn.mixers import Full
from regard.nn.positions.position import Bucketed, Learned, Relative

pytestmark = pytest.mark.numeric

WIDTH = 64


def parameters(init: str) -> dict[str, Tensor]:
    look = Full(4, qk_norm=RMSNorm())
    spec = ModelSpec(
        width=WIDTH, length=80, embed=Tokens(300, Learned()), source=Tokens(200), head=Vocab(tied=False, bias=True), init=init,
        encoder=Stack(Block(mix=look, feed=FeedForward(96)), depth=2, position=Relative(20)),
        decoder=Stack(Block(mix=look, cross=look, feed=FeedForward(96, gated=True)), depth=1, causal=True, position=Bucketed()),
    )  # fmt: skip
    return dict(spec.build(0).named_parameters())


@pytest.mark.parametrize("init", SCHEMES)
def test_norms_start_at_one_and_biases_at_zero(init: str) -> None:
    for name, value in parameters(init).items():
        if name.endswith("bias"):
            assert (value == 0).all(), name
        elif "norm" in name:
            assert (value == 1).all(), name
        else:
            assert value.std() > 0, name


def test_xavier_is_uniform_in_maps_and_normal_in_tables() -> None:
    for name, value in parameters("xavier").items():
        if name.endswith("bias") or "norm" in name:
            continue
        if name.split(".")[0] in ("embed", "source", "head"):
            assert value.std().item() == pytest.approx(WIDTH**-0.5, rel=0.05), name
            assert value.abs().max() > 2.5 * WIDTH**-0.5  # normal, not uniform
        else:
            bound = math.sqrt(6 / sum(value.shape))
            assert value.abs().max() <= bound, name
            assert value.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.15), name


def test_normal_is_the_same_everywhere() -> None:
    values = [v.flatten() for n, v in parameters("normal").items() if not n.endswith("bias") and "norm" not in n]
    assert torch.cat(values).std().item() == pytest.approx(0.02, rel=0.02)


def test_gpt2_is_smaller_where_maps_feed_the_stream() -> None:
    """Three layers in all, so 0.02/√6."""
    made = parameters("gpt2")
    small = {n for n in made if n.endswith(("out.weight", "down.weight"))}
    assert len(small) == 2 * 2 + 3
    for name, value in made.items():
        if not name.endswith("bias") and "norm" not in name:
            wanted = 0.02 / math.sqrt(6) if name in small else 0.02
            assert value.std().item() == pytest.approx(wanted, rel=0.15), name


def test_every_parameter_is_set() -> None:
    """Two builds from torch's same random state are equal: nothing is left as the memory happened to be."""
    for init in SCHEMES:
        a, b = parameters(init), parameters(init)
        assert all(torch.equal(a[n], b[n]) for n in a)
