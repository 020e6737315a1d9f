"""Sequential operations of a layer, by tracing.

The number of torch operations that must wait for one another. Every tensor has the number of operations between it and the
input; a view counts as none, and an in-place write counts for all tensors that share the storage. Every other operation counts
as one, even a sort or a cumulative sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Tracing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Tracks the depth of every tensor below the input while it is active."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._depth: dict[int, int] = {id(x): 0}
        self._written: dict[int, int] = {}
        self._alive: list[Tensor] = [x]  # keeps their ids from being reused

    def of(self, t: Tensor) -> int | None:
        """The depth of a tensor; None if it does not depend on the input."""
        found = [d[key] for d, key in ((self._depth, id(t)), (self._written, _storage(t))) if key in d]
        return max(found, default=None)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        read = list(_tensors((args, kwargs)))
        known = [d for t in read if (d := self.of(t)) is not None]
        out = func(*args, **(kwargs or {}))
        if known:
            storages = {_storage(t) for t in read}
            for t in _tensors(out):
                view = _storage(t) in storages and not func._schema.is_mutable
                self._note(t, max(known) + (0 if view else 1), written=func._schema.is_mutable)
        return out

    def _note(self, t: Tensor, depth: int, written: bool) -> None:
        self._alive.append(t)
        self._depth[id(t)] = depth
        if written:
            self._written[_storage(t)] = depth


def depth(layer: Callable[[Tensor], Tensor], x: Tensor) -> int:
    """The longest chain of operations from x to the layer's output."""
    with torch.no_grad(), Tracing(x) as tracing:
        y = layer(x)
    return tracing.of(y) or 0


def _tensors(tree: object) -> Iterator[Tensor]:
    return (leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))


def _storage(t: Tensor) -> int:
    return int(t.untyped_storage()._cdata)
