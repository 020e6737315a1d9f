"""Recurrent layers against torch's own, step by step and fused, with gradients."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor, nn

from regard.errors import SpecError
from regard.model.build import refusals
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.wiring import Bare
from regard.nn.core.context import Context, Tape
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import Site
from regard.nn.layers.lora import Lora, adapt
from regard.nn.layers.norm import LayerNorm
from regard.nn.mixers import GRU, LSTM, RNN, Full
from regard.nn.mixers.recurrent import RecurrentLayer, RecurrentMixer

pytestmark = pytest.mark.numeric

KINDS: list[tuple[RecurrentLayer, type[nn.RNNBase], dict[str, str]]] = [
    (RNN(width=6), nn.RNN, {}),
    (RNN(width=6, activation="relu"), nn.RNN, {"nonlinearity": "relu"}),
    (GRU(width=6), nn.GRU, {}),
    (LSTM(width=6), nn.LSTM, {}),
]
kinds = pytest.mark.parametrize(
    ("spec", "theirs", "dials"), KINDS, ids=lambda v: getattr(v, "__name__", None) or str(v)[:12]
)
ways = pytest.mark.parametrize("causal", [True, False], ids=["one way", "both ways"])
TOLERANCE = {torch.double: 1e-10, torch.float: 1e-6}


def pair(
    spec: RecurrentLayer, theirs: type[nn.RNNBase], dials: dict[str, str], causal: bool, dtype: torch.dtype
) -> tuple[RecurrentMixer, nn.RNNBase, list[tuple[Tensor, Tensor]]]:
    """Our layer, torch's with the same weights, and their parameters side by side."""
    torch.manual_seed(0)
    mine = spec.build(Site("mix", 5, 12, causal=causal)).to(dtype)
    other = theirs(5, mine.cells[0].width, batch_first=True, bidirectional=not causal, **dials).to(dtype)  # type: ignore[arg-type]
    both = []
    for cell, end in zip(mine.cells, ("", "_reverse"), strict=False):
        names = (f"{kind}_{side}_l0{end}" for kind in ("weight", "bias") for side in ("ih", "hh"))
        for own, name in zip(cell.weights, names, strict=True):
            own.data.copy_(getattr(other, name).data)
            both.append((own, getattr(other, name)))
    return mine, other, both


@kinds
@ways
@pytest.mark.parametrize("dtype", [torch.double, torch.float], ids=["double", "single"])
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "steps"])
def test_it_is_torchs_layer(
    spec: RecurrentLayer, theirs: type[nn.RNNBase], dials: dict[str, str], causal: bool, dtype: torch.dtype, fused: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Outputs, final states and every gradient; with padding, and in the plain path as in the fused."""
    mine, other, parameters = pair(spec, theirs, dials, causal, dtype)
    if not fused:
        monkeypatch.setattr("regard.nn.layers.recurrent_cell.RecurrentCell.is_plain", False)
    close = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    x, tape = torch.randn(3, 7, 5, dtype=dtype), Tape("*")
    for lengths in ([7, 7, 7], [4, 7, 2]):
        at = Coords.lengths(lengths)
        given = [x.clone().requires_grad_() for _ in range(2)]
        y, state = mine(given[0], Context(at, tape=tape), mine.start(3, 0))
        assert tape.plans["mix"] == ("fused: torch's kernel" if fused else "step by step")
        packed = nn.utils.rnn.pack_padded_sequence(
            given[1], torch.tensor(lengths), batch_first=True, enforce_sorted=False
        )
        out, after = other(packed)
        wanted, _ = nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
        torch.testing.assert_close(y, wanted, **close)
        alone, nothing = mine(given[0], Context(at))
        torch.testing.assert_close(alone, wanted, **close)
        assert nothing is None
        finals = after if isinstance(after, tuple) else (after,)
        for own, their in zip(state.carried, finals, strict=True):
            torch.testing.assert_close(own, torch.cat(list(their), -1), **close)
        sums = [y.sin().sum() + sum(s.cos().sum() for s in state.carried)]
        sums.append(wanted.sin().sum() + sum(s.cos().sum() for s in finals))
        grads = [torch.autograd.grad(total, [given[i], *(p[i] for p in parameters)]) for i, total in enumerate(sums)]
        for own, their in zip(*grads, strict=True):
            assert (own - their).abs().max() <= TOLERANCE[dtype] * max(their.abs().max(), 1)


@kinds
def test_one_token_is_torchs_cell(spec: RecurrentLayer, theirs: type[nn.RNNBase], dials: dict[str, str]) -> None:
    mine, _, parameters = pair(spec, theirs, dials, True, torch.double)
    cell = getattr(nn, f"{theirs.__name__}Cell")(5, 6, **dials).double()
    for (own, _), their in zip(parameters, cell.parameters(), strict=True):
        their.data.copy_(own.data)
    x, start = (
        torch.randn(3, 5, dtype=torch.double),
        tuple(torch.randn(3, 6, dtype=torch.double) for _ in range(mine.cells[0].carried)),
    )
    wanted = cell(x, start if len(start) > 1 else start[0])
    found = mine.cells[0].step(mine.cells[0].project(x), start)
    for own, their in zip(found, wanted if len(start) > 1 else (wanted,), strict=True):
        torch.testing.assert_close(own, their, rtol=0, atol=1e-12)


class TestNorm:
    def test_the_gates_of_an_lstm(self) -> None:
        """Ba et al. 2016, eq. 20-22, written plainly."""
        mine = LSTM(width=4, norm=LayerNorm()).build(Site("mix", 3, 12, causal=True)).double()
        for p in mine.parameters():
            nn.init.normal_(p)
        cell, x = mine.cells[0], torch.randn(2, 5, 3, dtype=torch.double)
        h = c = torch.zeros(2, 4, dtype=torch.double)
        for t in range(5):
            gates = cell.input_norm(cell.input(x[:, t])) + cell.hidden_norm(cell.hidden(h))  # type: ignore[misc]
            i, f, g, o = gates.chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * cell.cell_norm(c).tanh()  # type: ignore[operator]
        torch.testing.assert_close(mine(x, Context(Coords.span(5)))[0][:, -1], h, rtol=0, atol=1e-12)

    def test_it_is_not_fused(self) -> None:
        mine, tape = GRU(norm=LayerNorm()).build(Site("mix", 4, 12)), Tape("*")
        mine(torch.randn(1, 3, 4), Context(Coords.span(3), tape=tape))
        assert tape.plans == {"mix": "step by step"}


class TestDropout:
    def run(self, spec: RecurrentLayer) -> Tensor:
        mixer = spec.build(Site("mix", 50, 12, causal=True)).train()
        for cell in mixer.cells:
            nn.init.eye_(cell.input.weight)
            for p in (cell.hidden.weight, cell.input.bias, cell.hidden.bias):
                nn.init.zeros_(p)
        with torch.no_grad():
            return mixer(torch.full((4, 6, 50), 0.5), Context(Coords.span(6)))[0]

    def test_of_inputs(self) -> None:
        y = self.run(RNN(dropout=0.4))
        gone = y == 0
        assert 0.3 < gone.float().mean() < 0.5
        assert (gone[:, 0] != gone[:, 1]).any()
        torch.testing.assert_close(y[~gone], torch.full_like(y[~gone], 0.5 / 0.6).tanh(), rtol=1e-4, atol=1e-4)

    def test_the_same_at_every_step(self) -> None:
        gone = self.run(RNN(dropout=0.4, variational=True)) == 0
        assert 0.3 < gone.float().mean() < 0.5
        assert (gone == gone[:, :1]).all()
        assert (gone[0] != gone[1]).any()

    def test_of_the_hidden_state(self) -> None:
        """Whether an element reaches the next step is drawn once: h grows at every step, or never."""
        mixer = RNN(activation="relu", hidden_dropout=0.4).build(Site("mix", 50, 12, causal=True)).train()
        for weight in (mixer.cells[0].input.weight, mixer.cells[0].hidden.weight):
            nn.init.eye_(weight)
        for bias in (mixer.cells[0].input.bias, mixer.cells[0].hidden.bias):
            nn.init.zeros_(bias)
        with torch.no_grad():
            y, _ = mixer(torch.ones(4, 5, 50), Context(Coords.lengths([5, 5, 3, 5])))
            still, _ = mixer.eval()(torch.ones(4, 5, 50), Context(Coords.span(5)))
        grew = y[:, 1:3] > y[:, :2]
        assert (grew[:, 0] == grew[:, 1]).all()
        assert 0.4 < grew.float().mean() < 0.8
        assert (still[:, -1] == 5).all()


class TestSpec:
    def test_the_forget_gate_starts_open(self) -> None:
        spec = ModelSpec(8, 12, Tokens(11), decoder=Stack(Block(mix=LSTM(forget_bias=3.0)), depth=2, causal=True))
        for block in spec.build().decoder.blocks:  # type: ignore[union-attr]
            bias = block.mix.forth.input.bias
            assert (bias[8:16] == 3).all()
            assert (bias[:8] == 0).all()
            assert (bias[16:] == 0).all()

    def test_both_ways_unless_causal(self) -> None:
        for causal, count in ((True, 1), (False, 2)):
            mixer = GRU().build(Site("mix", 8, 12, causal=causal))
            assert len(mixer.cells) == count
            assert mixer(torch.randn(2, 3, 8), Context(Coords.span(3)))[0].shape == (2, 3, 8)
        assert len(GRU(bidirectional=False).build(Site("mix", 8, 12)).cells) == 1

    def test_what_cannot_be(self) -> None:
        def writer(mix: RecurrentLayer, width: int = 8, causal: bool = True) -> ModelSpec:
            stack = Stack(Block(mix=mix), depth=1, causal=causal, wiring=Bare())
            return ModelSpec(width, 12, Tokens(11), **{"decoder" if causal else "encoder": stack})

        said = "mixer 'lstm' cannot be causal and bidirectional (decoder.blocks.0.mix); set bidirectional: false"
        assert refusals(writer(LSTM(bidirectional=True))) == [said]
        said = "encoder.blocks.0.mix reads in two directions, and half of its width 7 is no integer; make it even"
        assert refusals(writer(GRU(), width=7, causal=False)) == [said]
        with pytest.raises(SpecError, match="half of its width 7"):
            GRU().build(Site("encoder.blocks.0.mix", 7, 12))

    def test_a_hybrid_of_recurrence_and_attention(self) -> None:
        blocks = (Block(mix=LSTM(width=6)), Block(mix=GRU()), Block(mix=Full(2)))
        spec = ModelSpec(8, 12, Tokens(11, width=4), decoder=Stack(blocks=blocks, causal=True, wiring=Bare()))
        assert spec.out_width == 6
        net = dataclasses.replace(spec, head=spec.head.replace("tied", False)).build()
        assert net(torch.randint(11, (2, 5)), Coords.span(5)).shape == (2, 5, 6)

    def test_an_adapter_is_used(self) -> None:
        spec = ModelSpec(8, 12, Tokens(11), decoder=Stack(Block(mix=LSTM()), depth=1, causal=True))
        net, ids = spec.build(0), torch.randint(11, (2, 5))
        before = net(ids, Coords.span(5))
        adapt(net, Lora(targets=("hidden",)))
        torch.testing.assert_close(net(ids, Coords.span(5)), before)
        nn.init.ones_(net.decoder.blocks[0].mix.forth.hidden.up)  # type: ignore[union-attr, index]
        assert not torch.allclose(net(ids, Coords.span(5)), before)
