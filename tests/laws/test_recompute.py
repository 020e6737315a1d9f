"""Computing activations twice saves memory and changes nothing: not the gradients, not the dropout."""

from __future__ import annotations

import dataclasses
from itertools import cycle

import pytest
import torch
from torch import Tensor

from regard.laws.case import decode_in_chunks
from regard.nn.blocks.body import Stack
from regard.nn.core.context import Context
from regard.nn.core.coords import Coords
from tests.laws.examples import BOTH, DECODERS, LENGTH, STREAMING, Case, make_ids, name_of

pytestmark = pytest.mark.numeric

AT = Coords.lengths([LENGTH, 5])


def is_uniform(case: Case) -> bool:
    """Whether each side is one block repeated, with a feed-forward: only blocks are computed twice."""
    sides = [body for body in (case.spec.encoder, case.spec.decoder) if body is not None]
    return all(isinstance(body, Stack) and body.block is not None and body.block.feed is not None for body in sides)


def variant(case: Case, *, recompute: bool, dropout: float) -> Case:
    spec = case.spec
    for side in ("encoder", "decoder"):
        if getattr(spec, side) is None:
            continue
        spec = spec.replace(f"{side}.recompute", recompute).replace(f"{side}.wiring.dropout", dropout)
        spec = spec.replace(f"{side}.block.feed.dropout", dropout)
        if hasattr(getattr(spec, side).block.mix, "dropout"):
            spec = spec.replace(f"{side}.block.mix.dropout", dropout)
    return dataclasses.replace(case, spec=spec)


def gradients(case: Case) -> list[Tensor]:
    net = case.net().train()
    source = (make_ids(2, LENGTH, seed=1), AT) if net.encoder is not None else None
    torch.manual_seed(7)
    out = net(make_ids(2, LENGTH), AT, source)
    return [out, *torch.autograd.grad(out.sin().sum(), list(net.parameters()), materialize_grads=True), torch.rand(1)]


@pytest.mark.parametrize(
    ("case", "dropout"),
    list(zip(filter(is_uniform, DECODERS + BOTH[::5]), cycle([0.3, 0.0]))),
    ids=lambda v: getattr(v, "name", v),
)
def test_twice_is_once(case: Case, dropout: float) -> None:
    once, twice = (gradients(variant(case, recompute=r, dropout=dropout)) for r in (False, True))
    for a, b in zip(once, twice, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_less_is_kept_for_the_backward_pass() -> None:
    kept = []
    for recompute in (False, True):
        net = variant(DECODERS[0], recompute=recompute, dropout=0.0).net().train()
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, s=sizes: s.append(t.numel()) or t, lambda t: t):
            assert net.decoder is not None
            net.decoder(torch.randn(2, LENGTH, 8, dtype=torch.double), Context(AT))
        kept.append(sum(sizes))
    assert kept[1] < kept[0] / 2


@pytest.mark.parametrize("case", [*filter(is_uniform, STREAMING[::3])], ids=name_of)
def test_twice_is_once_with_a_state(case: Case) -> None:
    """Three chunks, each from the state that the one before left, and one backward pass through all of them."""
    found = []
    for recompute in (False, True):
        net = variant(case, recompute=recompute, dropout=0.2).net().train()
        torch.manual_seed(7)
        out, state = decode_in_chunks(net, make_ids(2, LENGTH), Coords.span(LENGTH), net.start(2, 2), [5, 6])
        wanted = torch.autograd.grad(out.sin().sum(), list(net.parameters()), materialize_grads=True)
        found.append([out, *wanted, *state.flat().values(), torch.rand(1)])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_again_and_again() -> None:
    """A graph that is kept may be walked twice: the block is computed once more for each walk."""
    net = variant(DECODERS[0], recompute=True, dropout=0.3).net().train()
    out = net(make_ids(2, LENGTH), AT).sin().sum()
    first, second = (torch.autograd.grad(out, list(net.parameters()), retain_graph=True) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_only_where_there_will_be_a_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    net, tokens = variant(DECODERS[0], recompute=True, dropout=0.0).net(), make_ids(2, 4)
    monkeypatch.setattr("regard.nn.blocks.body.checkpoint", None)
    net.eval()(tokens, Coords.span(4))
    with torch.no_grad():
        net.train()(tokens, Coords.span(4))
    with pytest.raises(TypeError):
        net(tokens, Coords.span(4))
