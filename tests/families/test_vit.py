"""ViT against `transformers`: streams and logits, also at other sizes than it was built for, and sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from regard.errors import SpecError
from regard.families import vit
from regard.model.show import summary, tree
from regard.nn.context import Tape
from regard.nn.coords import Coords
from tests.families.naming import close, count, put, saved

TINY: dict[str, Any] = dict(width=16, depth=2, heads=4, hidden=24, patch=4)


def theirs(shape: dict[str, Any], image: int = 224, channels: int = 3, classes: int = 1000) -> Any:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=shape["width"], num_hidden_layers=shape["depth"], num_attention_heads=shape["heads"],
        intermediate_size=shape["hidden"], patch_size=shape["patch"], image_size=image, num_channels=channels,
        num_labels=classes, layer_norm_eps=1e-6,
    )  # fmt: skip
    return ViTForImageClassification(config).eval()


@pytest.mark.parametrize("size", [(12, 12), (20, 20), (8, 16)], ids=str)
def test_logits_are_theirs(size: tuple[int, int], tmp_path: Path) -> None:
    """Sizes other than its own have their places interpolated, on both sides."""
    other = theirs(TINY, 12, 2, 5)
    spec = vit.spec(**TINY, image=12, channels=2, classes=5)
    net = put(spec.build(), saved(other, tmp_path), vit.NAMES)
    images = torch.randn(3, 2, *size)
    at = Coords.span(spec.embed.tokens(*size))  # type: ignore[attr-defined]
    with torch.no_grad():
        said = other(pixel_values=images, interpolate_pos_encoding=size != (12, 12), output_hidden_states=True)
        stream = net(images, at)
        close(stream, other.vit.layernorm(said.hidden_states[-1]))
        close(net.logits(stream, at), said.logits)


PUBLISHED = {"vit-ti16": 5_717_416, "vit-s16": 22_050_664, "vit-b16": 86_567_656, "vit-l16": 304_326_632}
"""With 1000 classes; the paper says 86, 307 and 632 million for base, large and huge."""


@pytest.mark.parametrize("size", vit.SIZES)
def test_as_many_parameters_as_theirs(size: str) -> None:
    with torch.device("meta"):
        ours = count(vit.spec(size).build())
        assert ours == count(theirs(vit.SIZES[size]))
    assert ours == PUBLISHED.get(size, ours)


def test_mean_pooling_has_no_class_token() -> None:
    spec = vit.spec(**TINY, image=12, classes=5, pool="mean")
    net = spec.build(0).eval()
    assert spec.length == 9
    assert "embed.first" not in net.shapes()
    at, images = Coords.span(9), torch.randn(2, 3, 12, 12)
    stream = net(images, at)
    close(net.logits(stream, at), net.head.classes(stream.mean(1)))  # type: ignore[operator, union-attr]


def test_costs_are_of_an_image() -> None:
    """Nine tokens, however many were asked for, and what torch counts for them."""
    net = vit.spec(**TINY, image=12, classes=5, pool="mean").build().eval()
    facts, at = summary(net, 32), Coords.span(9)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        net.logits(net(torch.zeros(1, 3, 12, 12), at, tape=Tape("*")), at)
    assert facts["length"] == 9
    assert facts["flops"] * 9 == pytest.approx(counter.get_total_flops())
    assert "a token at length 9," in tree(net)


def test_the_head_of_pretraining_has_a_hidden_layer() -> None:
    assert set(vit.spec(**TINY, pretraining=True).build().head.state_dict()) == {
        "dense.weight", "dense.bias", "classes.weight", "classes.bias",
    }  # fmt: skip


def test_an_unknown_pooling() -> None:
    with pytest.raises(SpecError, match=r"^pool: input should be 'first' or 'mean', got 'max'$"):
        vit.spec(pool="max")  # type: ignore[arg-type]
