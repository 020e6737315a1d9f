"""ViT: pooling, costs and words. That it is theirs, at other resolutions too, is shown in `tests/conversion`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from regard.errors import SpecError
from regard.families import vit
from regard.model.tree import summary, tree
from regard.nn.core.context import Tape
from regard.nn.core.coords import Coords

pytestmark = pytest.mark.numeric

TINY: dict[str, Any] = dict(width=16, depth=2, heads=4, hidden=24, patch=4)


def test_mean_pooling_has_no_class_token() -> None:
    spec = vit.spec(**TINY, image=12, classes=5, pool="mean")
    net = spec.build(0).eval()
    assert spec.length == 9
    assert "embed.first" not in net.shapes()
    at, images = Coords.span(9), torch.randn(2, 3, 12, 12)
    stream = net(images, at)
    torch.testing.assert_close(net.logits(stream, at), net.head.classes(stream.mean(1)))  # type: ignore[operator, union-attr]


def test_costs_are_of_an_image() -> None:
    """Nine tokens, however many were asked for, and what torch counts for them."""
    net = vit.spec(**TINY, image=12, classes=5, pool="mean").build().eval()
    facts, at = summary(net, 32), Coords.span(9)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        net.logits(net(torch.zeros(1, 3, 12, 12), at, tape=Tape("*")), at)
    assert facts["length"] == 9
    assert facts["flops"] * 9 == pytest.approx(counter.get_total_flops())
    assert "per token forward at length 9," in tree(net)


def test_the_head_of_pretraining_has_a_hidden_layer() -> None:
    assert set(vit.spec(**TINY, pretraining=True).build().head.state_dict()) == {
        "dense.weight", "dense.bias", "classes.weight", "classes.bias",
    }  # fmt: skip


def test_an_unknown_pooling() -> None:
    with pytest.raises(SpecError, match=r"^pool: input should be 'first' or 'mean', got 'max'$"):
        vit.spec(pool="max")  # type: ignore[arg-type]


def test_without_classes_it_gives_what_it_pools() -> None:
    net = vit.spec(**TINY, image=12, classes=None).build(0).eval()
    at, images = Coords.span(10), torch.randn(2, 3, 12, 12)
    stream = net(images, at)
    assert torch.equal(net.logits(stream, at), stream[:, 0])
