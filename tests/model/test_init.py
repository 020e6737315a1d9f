"""Initial scales, by name; GPT-2's own are in `tests/families/test_gpt.py`."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from regard.model.init import SCHEMES, describe_rules
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import BODIES, Body, BodySpec, Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.head import Vocab
from regard.nn.core.context import Context
from regard.nn.core.mixer import Can, Site
from regard.nn.core.state import State
from regard.nn.layers.feedforward import FeedForward
from regard.nn.layers.norm import RMSNorm
from regard.nn.mixers import Full, full
from regard.nn.mixers.full import FullMixer
from regard.nn.positions.position import Bucketed, Learned, Relative
from regard.spec import spec

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


class OwnBody(Body):
    """Layers as others write them: norms by any name, in a sequence, with an initialization of their own, and one of ours."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        width = site.width
        self.ln_1, self.n2 = nn.LayerNorm(width), nn.RMSNorm(width)
        self.layers = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.GroupNorm(2, width))
        self.batch = nn.BatchNorm1d(width)
        self.gate = nn.Parameter(torch.full((width,), 0.25))
        self.normal = nn.Linear(width, width)
        nn.init.eye_(self.normal.weight)
        nn.init.constant_(self.normal.bias, 3.0)
        self.ours = FeedForward(64).build(site)

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        return self.normal(x), None


def own_net(monkeypatch: pytest.MonkeyPatch, **changes: bool) -> Net:
    @spec
    class OwnSpec(BodySpec):
        causal: bool = True
        can = Can(weights=False)

        def build(self, site: Site) -> Body:
            return OwnBody(site)

        def leaves(self, width: int, memory: int = 0) -> int:
            return width

    monkeypatch.setitem(BODIES._parts, "own_spec", OwnSpec)
    return ModelSpec(8, 16, Tokens(30), decoder=OwnSpec(), init="gpt2", **changes).build(0)


def test_a_module_of_a_plugin_keeps_its_own_initialization(monkeypatch: pytest.MonkeyPatch) -> None:
    net = own_net(monkeypatch)
    made = dict(net.named_parameters())
    norms = ("ln_1", "n2", "layers.1", "layers.2", "batch")
    assert all((made[f"decoder.{name}.weight"] == 1).all() for name in norms)
    assert (made["decoder.gate"] == 0.25).all()
    assert (made["decoder.normal.weight"] == torch.eye(8)).all()
    assert (made["decoder.normal.bias"] == 3).all()
    assert made["decoder.layers.0.bias"].abs().sum() > 0, "as torch makes it"
    assert made["decoder.ours.up.weight"].std().item() == pytest.approx(0.02, rel=0.3)
    assert (made["decoder.ours.up.bias"] == 0).all()
    assert describe_rules(net) == (
        "initial weights: 3 by gpt2, 2 biases zero, 9 of norms as made; "
        "5 of plugins keep their own (decoder.gate, decoder.layers.0.weight, decoder.layers.0.bias, decoder.normal.weight, …)"
    )


def test_a_recipe_may_ask_for_the_scheme_in_plugins_too(monkeypatch: pytest.MonkeyPatch) -> None:
    net = own_net(monkeypatch, init_plugins=True)
    made = dict(net.named_parameters())
    assert (made["decoder.ln_1.weight"] == 1).all()
    assert (made["decoder.batch.weight"] == 1).all()
    assert made["decoder.normal.weight"].std().item() == pytest.approx(0.02, rel=0.3)
    assert (made["decoder.normal.bias"] == 0).all()
    assert "plugins" not in describe_rules(net)


def test_a_subclass_of_our_layer_starts_as_that_layer_does(monkeypatch: pytest.MonkeyPatch) -> None:
    class Same(FullMixer):
        pass

    def build(init: str) -> list[Tensor]:
        block = Block(mix=Full(2), feed=FeedForward(16))
        return list(
            ModelSpec(8, 16, Tokens(30), decoder=Stack(block, depth=2, causal=True), init=init).build(0).parameters()
        )

    plain = build("gpt2")
    monkeypatch.setattr(full, "FullMixer", Same)
    assert all(torch.equal(a, b) for a, b in zip(plain, build("gpt2"), strict=True))
