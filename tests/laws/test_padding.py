"""What is not there is not seen: noise in padded places, rows alone and in a batch, and nothing to see at all."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from regard.model.net import Net
from regard.nn.blocks.body import Body
from regard.nn.core.context import Context
from regard.nn.core.coords import Coords
from tests.laws.examples import BOTH, DECODERS, ENCODERS, LENGTH, Case, ids, name_of
from tests.laws.running import CLOSE, rows_alone

pytestmark = pytest.mark.numeric

ALONE = ENCODERS + DECODERS
sides = pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
LENGTHS = [LENGTH, 5, 1]


def body_of(net: Net) -> Body:
    body = net.encoder if net.decoder is None else net.decoder
    assert body is not None
    return body


def noisy(x: Tensor, at: Coords, size: float = 1e3) -> Tensor:
    """The stream with large random values where there is no token."""
    return torch.where(at.kept.unsqueeze(-1), x, size * torch.randn_like(x))


@pytest.mark.parametrize("case", ALONE, ids=name_of)
@sides
def test_noise_in_padded_places_changes_nothing(case: Case, left: bool) -> None:
    net, at = case.net(), Coords.lengths(LENGTHS, left=left)
    body = body_of(net)
    x = net.embed(ids(3, LENGTH), at).detach()
    results = []
    for given in (x, noisy(x, at)):
        given.requires_grad_()
        out, _ = body(given, Context(at))
        kept = out[at.kept]
        grads = torch.autograd.grad(kept.sin().sum(), [given, *body.parameters()], materialize_grads=True)
        results.append((kept, grads[0][at.kept], *grads[1:]))
        assert (grads[0][~at.kept] == 0).all()
    for quiet, loud in zip(*results, strict=True):
        torch.testing.assert_close(loud, quiet, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", [c for c in ALONE if c.mixer.can.length == "any"], ids=name_of)
@sides
def test_a_row_alone_is_the_row_in_a_batch(case: Case, left: bool) -> None:
    net, tokens = case.net(), ids(3, LENGTH)
    spans = [slice(LENGTH - n, LENGTH) if left else slice(n) for n in LENGTHS]
    with torch.no_grad():
        together = net(tokens, Coords.lengths(LENGTHS, left=left))
        alone = rows_alone(net, [row[span] for row, span in zip(tokens, spans, strict=True)])
    for row, span, wanted in zip(together, spans, alone, strict=True):
        torch.testing.assert_close(row[span], wanted, **CLOSE)


@pytest.mark.parametrize(
    ("case", "left"), [(c, bool(i % 2)) for i, c in enumerate(ALONE)], ids=lambda v: getattr(v, "name", v)
)
def test_nothing_to_see_gives_zeros_and_finite_gradients(case: Case, left: bool) -> None:
    net, at = case.net(), Coords.lengths([LENGTH, 3, 0], left=left)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
    body = body_of(net)
    mixer = body.blocks[0].mix  # type: ignore[index, union-attr]
    x = noisy(torch.randn(3, LENGTH, 8, dtype=torch.double), at, 10.0).requires_grad_()
    ctx = Context(at, position=body.position, shared=dict(body.shared.items()))  # type: ignore[arg-type, operator]
    out, _ = mixer(x, ctx)
    assert (out[2] == 0).all()
    if left and case.spec.decoder is not None:
        assert (out[1, : LENGTH - 3] == 0).all()
    for grad in torch.autograd.grad(out.square().sum(), [x, *mixer.parameters()], materialize_grads=True):
        assert grad.isfinite().all()
    whole = net(ids(3, LENGTH), at)
    assert whole.isfinite().all()
    for grad in torch.autograd.grad(whole.sin().sum(), list(net.parameters()), materialize_grads=True):
        assert grad.isfinite().all()


@pytest.mark.parametrize("case", BOTH, ids=name_of)
@sides
def test_noise_in_padded_memory_changes_nothing(case: Case, left: bool) -> None:
    net, source, tokens = case.net(), Coords.lengths([7, 2, 4], left=left), ids(3, 5, seed=1)
    memory = net.encode(ids(3, 7), source)
    loud = noisy(memory.keys, source)
    target = Coords.lengths([5, 3, 1])
    outs = [net.decode(tokens, target, m)[0] for m in (memory, dataclasses.replace(memory, keys=loud, values=loud))]
    torch.testing.assert_close(outs[1][target.kept], outs[0][target.kept], **CLOSE)


@pytest.mark.parametrize("case", BOTH, ids=name_of)
def test_a_pair_alone_is_the_pair_in_a_batch(case: Case) -> None:
    net, source, target, lengths = case.net(), ids(3, 7), ids(3, 5, seed=1), [(7, 5), (2, 3), (4, 1)]
    with torch.no_grad():
        at = Coords.lengths([m for m, _ in lengths]), Coords.lengths([n for _, n in lengths])
        together = net(target, at[1], (source, at[0]))
        for row, (m, n) in enumerate(lengths):
            alone = net(target[row : row + 1, :n], Coords.span(n), (source[row : row + 1, :m], Coords.span(m)))
            torch.testing.assert_close(together[row, :n], alone[0], **CLOSE)


@pytest.mark.parametrize("case", BOTH, ids=name_of)
def test_an_empty_source_gives_zeros_and_finite_gradients(case: Case) -> None:
    net = case.net()
    out = net(ids(2, 4), Coords.span(4), (ids(2, 3), Coords.lengths([3, 0])))
    for grad in torch.autograd.grad(out.sin().sum(), list(net.parameters()), materialize_grads=True):
        assert grad.isfinite().all()
    tokens, other = ids(2, 3), ids(2, 3, seed=5)
    out, same = (net(ids(2, 4), Coords.span(4), (t, Coords.lengths([3, 0]))) for t in (tokens, other))
    torch.testing.assert_close(same[1], out[1], **CLOSE)
