"""How much a pass forward and back writes: a measure of work and memory that no clock disturbs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from regard.nn.core.context import Context
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import Mixer


class Written(TorchDispatchMode):
    """Counts the numbers that operations return, and remembers the most that one of them did."""

    def __init__(self) -> None:
        super().__init__()
        self.total = self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for t in tree_leaves(out):
            if isinstance(t, Tensor) and t._base is None:
                self.total += t.numel()
                self.largest = max(self.largest, t.numel())
        return out


def written(mixer: Mixer, n: int) -> Written:
    x = torch.randn(1, n, mixer.site.width, requires_grad=True)
    with Written() as work:
        mixer(x, Context(Coords.span(n)))[0].sum().backward()
    return work
