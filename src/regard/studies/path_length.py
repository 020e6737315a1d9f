"""Maximum path length between tokens, by gradients.

The number of layers until every output depends on every input. One backward pass over n copies of a row, copy j for output j
only, shows on which inputs each output of a layer depends. Stacked layers multiply these tables.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


def reach(layer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """True where output j depends on input i, (n, n), for a row x (n, d)."""
    n = x.shape[0]
    rows = x.detach().expand(n, -1, -1).clone().requires_grad_()
    each = torch.arange(n)
    y = layer(rows)[each, each]
    (felt,) = torch.autograd.grad((y * torch.randn_like(y)).sum(), rows)
    return (felt != 0).any(-1)


def path_length(hop: Callable[[int], nn.Module], x: Tensor, *, causal: bool, most: int) -> int | None:
    """Number of layers until each output depends on each input (if causal, each before it); None beyond `most`."""
    n = x.shape[0]
    wanted = torch.ones(n, n).tril() if causal else torch.ones(n, n)
    so_far = torch.eye(n)
    for i in range(most):
        layer = hop(i).to(x.dtype)
        feels = reach(layer, x).float() + torch.eye(n)  # the residual stream depends on itself
        so_far = (feels @ so_far).clamp(max=1.0)
        if torch.equal(so_far * wanted, wanted):
            return i + 1
        with torch.no_grad():
            x = x + layer(x.unsqueeze(0)).squeeze(0)
            x = x / x.std()  # many layers must not saturate a softmax
    return None
