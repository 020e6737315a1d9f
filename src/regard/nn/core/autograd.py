"""The type of `ctx` in custom autograd functions."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class FunctionContext(Protocol):
    """Members that torch offers on `ctx`; a function that stores more declares it in a subclass."""

    saved_tensors: tuple[Tensor, ...]
    needs_input_grad: tuple[bool, ...]

    def save_for_backward(self, *tensors: Tensor | None) -> None: ...

    def mark_non_differentiable(self, *tensors: Tensor) -> None: ...
