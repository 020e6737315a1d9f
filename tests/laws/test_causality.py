"""Changing token t changes nothing before t. What a token sees, it does depend on."""

from __future__ import annotations

import pytest
import torch

from regard.nn.core.coords import Coords
from tests.laws.examples import DECODERS, LENGTH, Case, ids, name_of
from tests.laws.running import CLOSE

pytestmark = pytest.mark.numeric


@pytest.mark.parametrize("case", DECODERS, ids=name_of)
def test_the_past_does_not_see_the_future(case: Case) -> None:
    net, tokens, at = case.net(), ids(2, LENGTH), Coords.lengths([LENGTH, LENGTH - 1])
    with torch.no_grad():
        before = net(tokens, at)
        for t in (1, LENGTH // 2, LENGTH - 2):
            changed = tokens.clone()
            changed[:, t] = (changed[:, t] + 1) % 11
            after = net(changed, at)
            torch.testing.assert_close(after[:, :t], before[:, :t], **CLOSE)
            assert ((after[:, t] - before[:, t]).abs().amax(-1) > 1e-6).all()


@pytest.mark.parametrize("case", DECODERS, ids=name_of)
def test_no_gradient_flows_back_in_time(case: Case) -> None:
    net, at, t = case.net(), Coords.span(LENGTH), LENGTH // 2
    assert net.decoder is not None
    x = net.embed(ids(2, LENGTH), at).detach().requires_grad_()
    from regard.nn.core.context import Context

    out, _ = net.decoder(x, Context(at))
    (grad,) = torch.autograd.grad(out[:, : t + 1].sin().sum(), x)
    assert (grad[:, t + 1 :] == 0).all()
    assert (grad[:, t] != 0).any()
