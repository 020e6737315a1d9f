"""End the work of torch between two of its operations.

What computes for a request may be deep inside a model: a layer, a step of a search, one of many texts. Every function of torch
passes here first, so a request that is cancelled or late ends before the next one, whichever route it took.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from torch.overrides import TorchFunctionMode


class StopTorch(TorchFunctionMode):
    """A block in which `check` is called before every function of torch, and may raise an error."""

    def __init__(self, check: Callable[[], None]) -> None:
        super().__init__()
        self._check = check

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Collection[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        self._check()
        return func(*args, **(kwargs or {}))
