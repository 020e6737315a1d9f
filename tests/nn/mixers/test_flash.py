"""The flash mixer: full attention in everything but the way it runs."""

from __future__ import annotations

import pytest
import torch

from regard.families import gpt
from regard.nn.core.context import Context, Tape
from regard.nn.core.coords import Coords
from regard.nn.core.mask import Window
from regard.nn.core.mixer import Site
from regard.nn.layers.norm import RMSNorm
from regard.nn.mixers import Flash, Full
from regard.nn.positions.position import Bucketed
from tests.nn.odd import writer
from tests.nn.test_tiled import Largest

pytestmark = pytest.mark.numeric

SITE = Site("decoder.blocks.0.mix", width=8, length=16, causal=True)


def test_its_twin_has_all_its_dials() -> None:
    dials = dict(kv_heads=2, head_width=3, scale=0.4, bias=False, dropout=0.1, mask=Window(3), qk_norm=RMSNorm())
    flash = Flash(4, position=Bucketed(8, 6), tile=32, **dials)  # type: ignore[arg-type]
    assert flash.twin() == Full(4, position=Bucketed(8, 6), **dials)  # type: ignore[arg-type]
    names = [[n for n, _ in spec.build(SITE).named_parameters()] for spec in (flash, flash.twin())]
    assert names[0] == names[1]


def test_one_word_makes_a_model_use_it() -> None:
    spec = gpt.spec(width=16, depth=2, heads=2, vocab=11, length=16)
    tiled = spec.replace("decoder.block.mix.kind", "flash")
    assert tiled.decoder.layers()[0].mix == Flash(2, dropout=0.1)  # type: ignore[union-attr]
    a, b = spec.build(0).eval(), tiled.build(0).eval()
    ids = torch.randint(11, (2, 16))
    torch.testing.assert_close(a(ids, Coords.span(16)), b(ids, Coords.span(16)))


def test_it_says_how_it_runs() -> None:
    tape = Tape("nothing")
    Flash(2, tile=4).build(SITE)(torch.randn(1, 5, 8), Context(Coords.span(5), tape=tape))
    assert tape.plans == {SITE.path: "flash: tiles of 4; masks and biases of one tile at a time"}
    assert tape.kept == {}


@pytest.mark.parametrize("spec", [Full(4), Flash(4, tile=3)], ids=repr)
def test_weights_of_chosen_layers_heads_and_rows(spec: Full) -> None:
    net, ids, at = writer(spec).build(0).eval(), torch.randint(11, (2, 10)), Coords.lengths([10, 6])
    whole, some = Tape("*.weights"), Tape("decoder.blocks.1.mix.weights", rows=[7, 0, 4], heads=[3, 1])
    for tape in (whole, some):
        net(ids, at, tape=tape)
    assert list(some.kept) == ["decoder.blocks.1.mix.weights"]
    wanted = whole.kept["decoder.blocks.1.mix.weights"][:, [3, 1]][:, :, [7, 0, 4]]
    inside = at.kept[:, [7, 0, 4]][:, None, :, None]  # what padding attends to has no meaning
    torch.testing.assert_close(some.kept["decoder.blocks.1.mix.weights"] * inside, wanted * inside)


def test_they_take_room_for_tiles_and_the_rows_alone() -> None:
    """A whole model over a long text, two rows of one head of one layer asked for: nothing of n × n is ever made."""
    n = 320
    net, ids = writer(Flash(4, tile=16)).replace("length", n).build(0).eval(), torch.randint(11, (1, n))
    tape = Tape("decoder.blocks.1.mix.weights", rows=[n - 1, 7], heads=[2])
    with torch.no_grad(), Largest() as mode:
        net(ids, Coords.span(n), tape=tape)
    (weights,) = tape.kept.values()
    assert weights.shape == (1, 1, 2, n)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 1, 2))
    assert mode.numbers < n * n / 8


def test_dropout_is_on_in_training_only() -> None:
    mixer, x, ctx = Flash(2, dropout=0.5).build(SITE), torch.randn(1, 9, 8), Context(Coords.span(9))
    assert not torch.equal(mixer(x, ctx)[0], mixer(x, ctx)[0])
    mixer.eval()
    assert torch.equal(mixer(x, ctx)[0], mixer(x, ctx)[0])


def test_it_may_be_low_precision() -> None:
    net = writer(Flash(2, tile=4), position=Bucketed(8, 6)).build(0).bfloat16()
    out = net(torch.randint(11, (2, 9)), Coords.lengths([9, 5]))
    assert out.dtype == torch.bfloat16
    out.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())
