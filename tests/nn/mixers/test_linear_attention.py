"""Linear attention against the sums of the paper, and as a recurrence."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import SpecError, UnknownName
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.core.context import Context, Memory
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import MIXERS, Site
from regard.nn.mixers import LinearAttention
from regard.nn.mixers.linear_attention import CHUNK, LinearAttentionMixer
from regard.nn.positions.position import Rotary

pytestmark = pytest.mark.numeric


def mixer(causal: bool = True, **site: object) -> LinearAttentionMixer:
    torch.manual_seed(0)
    return LinearAttention(2).build(Site("mix", 8, 300, causal=causal, **site)).double()  # type: ignore[arg-type]


def by_hand(layer: LinearAttentionMixer, x: Tensor, source: Tensor, causal: bool) -> Tensor:
    """Katharopoulos et al. 2020, eq. 4 and 8, pair by pair."""
    q, k, v = (part(t).view(len(t), 2, 4) for part, t in ((layer.q, x), (layer.k, source), (layer.v, source)))
    out = torch.empty_like(q)
    for h in range(2):
        for i in range(len(q)):
            last = i + 1 if causal else len(k)
            sims = torch.stack([(F.elu(q[i, h]) + 1) @ (F.elu(k[j, h]) + 1) for j in range(last)])
            out[i, h] = (sims.unsqueeze(1) * v[:last, h]).sum(0) / sims.sum()
    return layer.out(out.flatten(1))


@pytest.mark.parametrize("causal", [True, False])
def test_it_is_the_papers(causal: bool) -> None:
    layer, x = mixer(causal), torch.randn(11, 8, dtype=torch.double, requires_grad=True)
    wanted, (found, _) = by_hand(layer, x, x, causal), layer(x.unsqueeze(0), Context(Coords.span(11)))
    torch.testing.assert_close(found[0], wanted, rtol=0, atol=1e-10)
    inputs = [x, *layer.parameters()]
    for own, theirs in zip(*(torch.autograd.grad(y.sin().sum(), inputs) for y in (found, wanted)), strict=True):
        torch.testing.assert_close(own, theirs, rtol=0, atol=1e-10)


def test_across() -> None:
    layer, x, source = mixer(role="cross", memory=8), *torch.randn(2, 6, 8, dtype=torch.double).unbind(0)
    keys = source.unsqueeze(0)
    found, _ = layer(x.unsqueeze(0), Context(Coords.span(6), memory=Memory(keys, keys, Coords.span(6))))
    torch.testing.assert_close(found[0], by_hand(layer, x, source, False), rtol=0, atol=1e-10)


def test_it_is_a_recurrence() -> None:
    """S and z of eq. 18-20 are the state; more tokens than a chunk, and the state does not grow."""
    layer, n = mixer(), CHUNK + 5
    x = torch.randn(1, n, 8, dtype=torch.double)
    with torch.no_grad():
        whole, _ = layer(x, Context(Coords.span(n)))
        state = layer.start(1, 0)
        for i in range(n):
            y, state = layer(x[:, i : i + 1], Context(Coords.span(1, i)), state)
            torch.testing.assert_close(y, whole[:, i : i + 1], rtol=0, atol=1e-10)
    k, v = (F.elu(layer.k(x)) + 1).view(n, 2, 4), layer.v(x).view(n, 2, 4)
    sums = torch.einsum("nhr,nhe->hre", k, F.pad(v, (0, 1), value=1.0))
    torch.testing.assert_close(state.sums[0], sums, rtol=1e-10, atol=1e-10)  # type: ignore[union-attr]
    assert layer.state_numbers(10) == layer.state_numbers(1000) == 2 * 4 * 5


@pytest.mark.parametrize("own", [True, False])
def test_rotary_positions_are_refused(own: bool) -> None:
    """φ(Rq)·φ(Rk) is no function of the distance."""
    mix, stack = (LinearAttention(2, position=Rotary()), None) if own else (LinearAttention(2), Rotary())
    body = Stack(Block(mix=mix), depth=1, position=stack, causal=True)
    with pytest.raises(
        SpecError, match=r"^mixer 'linear_attention' cannot use position 'rotary' \(.*\): it needs rotate$"
    ):
        ModelSpec(8, 12, Tokens(11), decoder=body).build()


@pytest.mark.parametrize(("said", "meant"), [("linear_transformer", "linear_attention"), ("favor", "performer")])
def test_names(said: str, meant: str) -> None:
    with pytest.raises(UnknownName, match=f"^no mixer '{said}'; did you mean '{meant}'\\?$"):
        MIXERS[said]
