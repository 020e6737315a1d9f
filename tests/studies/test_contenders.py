"""Every contender runs, is what it says it is, and its plain form computes the same."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from regard.errors import UnknownName
from regard.studies.contenders import (
    CONTENDERS,
    FULL,
    MixerLayer,
    Segments,
    Shape,
    Unrolled,
    select_contenders,
)
from regard.studies.growth import fit_exponent
from regard.studies.measure import EVENTS, Measuring, Passes, account

pytestmark = pytest.mark.numeric

SHAPE = Shape(64, width=16, heads=2, window=16)


@pytest.mark.parametrize("name", CONTENDERS)
def test_it_runs_forward_and_backward(name: str) -> None:
    torch.manual_seed(0)
    passes = Passes(CONTENDERS[name].layer(SHAPE, 3), SHAPE)
    forward, backward = passes.run()
    assert forward > 0 and backward > 0
    assert passes.x.grad is not None and passes.x.grad.isfinite().all()
    assert all(p.grad is not None for p in passes.layer.parameters())


@pytest.mark.parametrize("name", [n for n, c in CONTENDERS.items() if c.group != "before attention" and c.hop])
def test_the_plain_form_computes_the_same(name: str) -> None:
    made = []
    for plain in (False, True):
        torch.manual_seed(0)
        layer = CONTENDERS[name].plain(SHAPE) if plain else CONTENDERS[name].layer(SHAPE, 0)
        made.append(layer.double())
    x = torch.randn(1, SHAPE.n, SHAPE.width, dtype=torch.float64)
    torch.testing.assert_close(made[0](x), made[1](x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("layer", "cell"), [(nn.LSTM, nn.LSTMCell), (nn.GRU, nn.GRUCell), (nn.RNN, nn.RNNCell)])
def test_a_loop_of_cells_is_the_recurrent_layer(layer: type[nn.LSTM], cell: type[nn.LSTMCell]) -> None:
    """torch's, which the recurrent mixers equal (`tests/nn/mixers`)."""
    whole, loop = layer(SHAPE.width, SHAPE.width, batch_first=True).double(), Unrolled(cell, SHAPE).double()
    for name, parameter in loop.cell.named_parameters():
        parameter.data.copy_(getattr(whole, f"{name}_l0"))
    x = torch.randn(1, 9, SHAPE.width, dtype=torch.float64)
    torch.testing.assert_close(loop(x), whole(x)[0], rtol=1e-9, atol=1e-9)


def test_segments_see_the_one_before() -> None:
    torch.manual_seed(0)
    layer = CONTENDERS["xl_memory"].layer(SHAPE, 0)
    assert isinstance(layer, Segments)
    x = torch.randn(1, SHAPE.n, SHAPE.width)
    other = x.clone()
    other[:, 0] += 1
    changed = (layer(x) != layer(other)).any(-1)[0]
    assert changed[: 2 * SHAPE.window].any() and changed[SHAPE.window : 2 * SHAPE.window].any()
    assert not changed[2 * SHAPE.window :].any()


def test_all_mixers_of_the_papers_take_part() -> None:
    kinds = {
        type(layer.mix).__name__
        for c in CONTENDERS.values()
        if isinstance(layer := c.layer(SHAPE, 0), MixerLayer)
    }  # fmt: skip
    assert kinds == {
        f"{name}Mixer"
        for name in (
            "Full", "Flash", "Local", "BigBird", "Sparse", "Lsh", "Performer", "LinearAttention", "Linformer", "XLMemory",
            "Recurrent",
        )
    }  # fmt: skip


def test_some_of_them() -> None:
    assert [c.name for c in select_contenders(())] == list(CONTENDERS)
    assert [c.name for c in select_contenders(("local", "gru"))] == [FULL, "local", "gru"]
    with pytest.raises(UnknownName, match="no contender 'lokal'; did you mean 'local'"):
        select_contenders(("lokal",))


class TestMemory:
    def test_what_is_held_at_once_is_counted(self) -> None:
        def run() -> None:
            for _ in range(3):
                a = torch.zeros(1000)
                b = a + 1
                del a, b

        assert 8000 <= account(run)[0] < 9000

    @pytest.mark.parametrize(("name", "least", "most"), [("plain", 3.3, 4.1), ("flash", 1.0, 2.1), ("local", 1.0, 2.1)])
    def test_it_grows_as_it_should(self, name: str, least: float, most: float) -> None:
        shape = dataclasses.replace(SHAPE, n=512, window=64)
        short, long = (
            account(Passes(CONTENDERS[name].layer(s, 0), s).run)[0] for s in (shape, dataclasses.replace(shape, n=1024))
        )
        assert least < long / short < most

    @pytest.mark.parametrize(
        ("name", "least", "most"),
        [("plain", 1.8, 2.0), *((name, 0.5, 1.15) for name in ("flash", "local", "bigbird", "performer", "linformer"))],
    )
    def test_fitted_exponents(self, name: str, least: float, most: float) -> None:
        """The promise of every linear mixer, over three doublings; bytes are counted, so no noise is in it."""
        shapes = [Shape(256 << i, width=32, heads=2, window=64) for i in range(4)]
        fit = fit_exponent([(s.n, account(Passes(CONTENDERS[name].layer(s, 0), s).run)[0]) for s in shapes])
        assert fit is not None
        assert least <= fit.exponent <= most

    @pytest.mark.slow
    def test_a_window_takes_no_more_room_than_fused_full_attention(self) -> None:
        """512 of 8k tokens, forward and backward."""
        shape = Shape(8192)
        window, full = (account(Passes(CONTENDERS[name].layer(shape, 0), shape).run)[0] for name in ("local", "fused"))
        assert window <= 1.2 * full

    def test_an_account_that_would_be_too_long_is_left_out(self) -> None:
        measuring = Measuring("gru", SHAPE)
        short = measuring.at(16, 0.0)
        assert short["bytes"] > 0 and len(short["passes"]) == 1
        assert short["least"] > sum(short["passes"][0])
        measuring.events = [(16, EVENTS / 2)]
        long = measuring.at(64, 0.0)
        assert long["bytes"] is None and long["passes"]
