"""Causality: changing a token changes nothing before it."""

from __future__ import annotations

import torch

from regard.laws.case import LENGTH, VOCAB, Case, make_ids, require, require_close
from regard.nn.core.context import Context
from regard.nn.core.coords import Coords

ADVICE = "read only earlier tokens where `site.causal` is set, or declare Can(causal=False)"


def check_outputs(case: Case) -> None:
    """Outputs before a changed token stay the same; the output at the token changes."""
    net, tokens, at = case.net(), make_ids(2, LENGTH), Coords.lengths([LENGTH, LENGTH - 1])
    source = (make_ids(2, 5, seed=1), Coords.lengths([5, 3])) if case.shape == "both" else None
    with torch.no_grad():
        before = net(tokens, at, source)
        for t in (1, LENGTH // 2, LENGTH - 2):
            changed = tokens.clone()
            changed[:, t] = (changed[:, t] + 1) % VOCAB
            after = net(changed, at, source)
            require_close(after[:, :t], before[:, :t], f"changing token {t} changes the output before it; {ADVICE}")
            if source is not None:  # through attention to a memory alone, almost nothing may move
                continue
            moved = (after[:, t] - before[:, t]).abs().amax(-1) > 1e-6
            require(moved.all(), f"changing token {t} does not change the output at token {t}")


def check_gradients(case: Case) -> None:
    """No gradient flows from an output to a later input."""
    net, at, t = case.net(), Coords.span(LENGTH), LENGTH // 2
    assert net.decoder is not None
    x = net.embed(make_ids(2, LENGTH), at).detach().requires_grad_()
    out, _ = net.decoder(x, Context(at))
    (grad,) = torch.autograd.grad(out[:, : t + 1].sin().sum(), x)
    require((grad[:, t + 1 :] == 0).all(), f"the outputs up to token {t} have a gradient in later inputs; {ADVICE}")
    require((grad[:, t] != 0).any(), f"the output at token {t} has no gradient in its own input")
