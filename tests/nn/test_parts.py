"""Norms, the feed-forward sublayer, embeddings and heads."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F

from regard.errors import ShapeError, SpecError
from regard.nn.blocks.embedding import Tokens
from regard.nn.blocks.head import Vocab
from regard.nn.blocks.vectors import Vectors
from regard.nn.core.context import Context
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import Site
from regard.nn.layers.feedforward import FeedForward
from regard.nn.layers.norm import LayerNorm, NormSpec, RMSNorm
from regard.nn.positions.position import Learned, Rotary, Sinusoidal, sinusoid

pytestmark = pytest.mark.numeric

SITE = Site("embed", width=8, length=16)
X = torch.linspace(-3, 5, 2 * 3 * 8, dtype=torch.double).view(2, 3, 8).sin() * 4
AT = Coords.span(3)


class TestNorms:
    def test_layer_norm_is_its_formula(self) -> None:
        norm = LayerNorm(eps=0.1).build(8).double()
        torch.nn.init.normal_(norm.weight)
        torch.nn.init.normal_(norm.bias)
        centred = X - X.mean(-1, keepdim=True)
        wanted = centred / (centred.square().mean(-1, keepdim=True) + 0.1).sqrt() * norm.weight + norm.bias
        torch.testing.assert_close(norm(X), wanted)

    @pytest.mark.parametrize("kind", [LayerNorm, RMSNorm])
    def test_a_norm_gives_what_the_maps_behind_it_compute_in(self, kind: type[NormSpec]) -> None:
        norm, x = kind().build(8), X.float()
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(norm(x), norm.float()(x).bfloat16())
            assert norm(x).dtype == torch.bfloat16
            assert norm.double()(X).dtype == torch.float64
        assert norm.float()(x).dtype == torch.float32

    def test_rms_norm_is_its_formula(self) -> None:
        norm = RMSNorm(eps=0.1).build(8).double()
        torch.nn.init.normal_(norm.weight)
        torch.testing.assert_close(norm(X), X / (X.square().mean(-1, keepdim=True) + 0.1).sqrt() * norm.weight)

    def test_names_of_their_parameters(self) -> None:
        made = [LayerNorm().build(8), LayerNorm(bias=False).build(8), RMSNorm().build(8)]
        assert [[n for n, _ in m.named_parameters()] for m in made] == [["weight", "bias"], ["weight"], ["weight"]]


class TestFeedForward:
    @pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "silu"])
    @pytest.mark.parametrize("gated", [False, True])
    @pytest.mark.parametrize("bias", [False, True])
    def test_is_its_formula(self, activation: str, gated: bool, bias: bool) -> None:
        layer = FeedForward(5, activation, gated, bias).build(SITE).double()
        act = {
            "relu": lambda x: x.clamp(min=0),
            "gelu": lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))),
            "gelu_tanh": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
            "silu": lambda x: x * torch.sigmoid(x),
        }[activation]
        state = layer.state_dict()
        wanted_names = {f"{n}.{p}" for n in ("up", "down", *(["gate"] * gated)) for p in ("weight", *(["bias"] * bias))}
        assert set(state) == wanted_names

        def linear(name: str, x: torch.Tensor) -> torch.Tensor:
            return x @ state[f"{name}.weight"].T + state.get(f"{name}.bias", 0)

        hidden = act(linear("gate", X)) * linear("up", X) if gated else act(linear("up", X))
        out, state_ = layer(X, Context(AT))
        torch.testing.assert_close(out, linear("down", hidden))
        assert state_ is None

    def test_an_unknown_activation(self) -> None:
        with pytest.raises(SpecError, match=r"^no activation 'gelo'; did you mean 'gelu'\?"):
            FeedForward(5, "gelo")


class TestTokens:
    ids = torch.tensor([[1, 2, 3], [3, 0, 1]])

    def test_scale_before_the_position_joins_and_normalise_after(self) -> None:
        made = Tokens(5, Sinusoidal(), scaled=True, norm=LayerNorm()).build(SITE).double()
        torch.nn.init.normal_(made.weight)
        x = made.weight[self.ids] * math.sqrt(8) + sinusoid(torch.arange(3), 8, "pairs", torch.double)
        torch.testing.assert_close(made(self.ids, AT), F.layer_norm(x, (8,)))

    def test_alone_are_rows_of_a_table(self) -> None:
        made = Tokens(5).build(SITE)
        torch.nn.init.normal_(made.weight)
        assert torch.equal(made(self.ids, AT), made.weight[self.ids])

    def test_a_vector_more_for_each_segment(self) -> None:
        made = Tokens(5, segments=2).build(SITE)
        for parameter in made.parameters():
            torch.nn.init.normal_(parameter)
        segment = torch.tensor([[0, 1, 1], [0, 0, 1]])
        at = dataclasses.replace(AT, segment=segment)
        assert torch.equal(made(self.ids, at), made.weight[self.ids] + made.segment[segment])
        assert torch.equal(made(self.ids, AT), made.weight[self.ids] + made.segment[0])

    def test_segments_for_which_there_are_no_vectors(self) -> None:
        with pytest.raises(ShapeError, match=r"^embed has no segments and was given some; set embed.segments$"):
            Tokens(5).build(SITE)(self.ids, dataclasses.replace(AT, segment=torch.zeros(1, 3, dtype=torch.long)))

    def test_a_position_that_acts_on_attention_is_refused(self) -> None:
        said = r"^position 'rotary' acts on attention; set it in the stack or mixer, not in embed$"
        with pytest.raises(SpecError, match=said):
            Tokens(5, Rotary()).build(SITE)

    def test_vectors_of_another_width_know_their_place(self) -> None:
        net = Vectors(3, Learned(), width=6).build(Site("embed", 4, 2))
        with pytest.raises(ShapeError, match=r"embed\.position has 2 positions, asked for 3"):
            net(torch.zeros(1, 3, 3), Coords.span(3))

    def test_dropout_in_training_only(self) -> None:
        made = Tokens(5, dropout=0.5).build(SITE)
        torch.nn.init.ones_(made.weight)
        assert set(made(self.ids, AT).unique().tolist()) == {0, 2}
        assert set(made.eval()(self.ids, AT).unique().tolist()) == {1}


class TestVocab:
    table = torch.randn(5, 8, dtype=torch.double, generator=torch.Generator().manual_seed(1))
    target = torch.tensor([[1, -100, 3], [0, 0, 4]])

    @pytest.mark.parametrize(
        "spec", [Vocab(), Vocab(bias=True), Vocab(tied=False), Vocab(scale=0.3), Vocab(False, True, 0.5)]
    )
    def test_logits_and_loss_agree(self, spec: Vocab) -> None:
        head = spec.build(SITE, 5).double()
        for parameter in head.parameters():
            torch.nn.init.normal_(parameter)
        assert (head.weight is None) == spec.tied
        weight = self.table if head.weight is None else head.weight
        logits = head(X, self.table)
        torch.testing.assert_close(logits, X * spec.scale @ weight.T + (0 if head.bias is None else head.bias))
        loss, plain = head.loss(X, self.table, self.target, 0.1)
        flat = logits.flatten(0, 1), self.target.flatten()
        torch.testing.assert_close(loss, F.cross_entropy(*flat, label_smoothing=0.1, reduction="sum"))
        torch.testing.assert_close(plain, F.cross_entropy(*flat, reduction="sum"))
