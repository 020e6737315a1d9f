"""Maximum path length: through how many layers a signal goes until every output feels every input, found by gradients.

One backward pass over n copies of a row, copy j asked for output j alone, shows which inputs each output of a layer feels.
Layers with a residual stream between them multiply these tables: after k layers, j feels i if somebody between them does.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


def reach(layer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """True where output j feels input i, (n, n), for a row x (n, d)."""
    n = x.shape[0]
    rows = x.detach().expand(n, -1, -1).clone().requires_grad_()
    each = torch.arange(n)
    y = layer(rows)[each, each]
    (felt,) = torch.autograd.grad((y * torch.randn_like(y)).sum(), rows)
    return (felt != 0).any(-1)


def path_length(hop: Callable[[int], nn.Module], x: Tensor, *, causal: bool, most: int) -> int | None:
    """How many layers until each output feels each input (each before it, where causal); None beyond `most`."""
    n = x.shape[0]
    wanted = torch.ones(n, n).tril() if causal else torch.ones(n, n)
    so_far = torch.eye(n)
    for i in range(most):
        layer = hop(i).to(x.dtype)
        feels = reach(layer, x).float() + torch.eye(n)  # the residual stream feels itself
        so_far = (feels @ so_far).clamp(max=1.0)
        if torch.equal(so_far * wanted, wanted):
            return i + 1
        with torch.no_grad():
            x = x + layer(x.unsqueeze(0)).squeeze(0)
            x = x / x.std()  # many layers must not make a softmax hard
    return None
