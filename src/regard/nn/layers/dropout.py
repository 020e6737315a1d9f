"""Fast dropout with independent masks on CPUs.

Srivastava et al. 2014.

torch draws one float per element from a serial generator, which takes a tenth of a training step on a CPU. Here one 64-bit word
of a fast generator (SFC64) serves four elements, 16 bits each. It is seeded from the random stream of the pass: saving that
stream saves the masks, and recomputing a block draws the same mask again.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from regard.nn.core.autograd import FunctionContext
from regard.nn.core.rng import new_seed

LEVELS = 1 << 16


def dropout(x: Tensor, p: float, seed: int | None = None) -> Tensor:
    """Zero each element with probability `p` (rounded to 1/65536) and scale the rest; nothing to do at p = 0.

    The same `seed` drops the same elements.
    """
    drops = min(round(p * LEVELS), LEVELS - 1)
    if drops == 0:
        return x
    if x.device.type != "cpu" and seed is None:
        return torch.nn.functional.dropout(x, p)
    return _Dropout.apply(x, _keep(x, drops, seed), LEVELS / (LEVELS - drops))  # type: ignore[no-any-return, no-untyped-call]


class Dropout(nn.Module):
    """Dropout in training, identity in evaluation."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p) if self.training else x

    def extra_repr(self) -> str:
        return f"p={self.p}"


def _keep(x: Tensor, drops: int, seed: int | None = None) -> Tensor:
    """Return a mask like x, 0 with probability drops / 65536 and otherwise 1, in bytes, which multiply faster than booleans."""
    count = x.numel()
    words = np.random.SFC64(new_seed() if seed is None else seed).random_raw((count + 3) // 4)
    bits = torch.from_numpy(words.view(np.int16))[:count].view(x.shape)
    return torch.ge(bits, drops - LEVELS // 2, out=torch.empty(x.shape, dtype=torch.uint8)).to(x.device)


class _DropoutContext(FunctionContext, Protocol):
    scale: float


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _DropoutContext, x: Tensor, keep: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(keep)
        ctx.scale = scale
        return x.mul(keep).mul_(scale)

    @staticmethod
    def backward(ctx: _DropoutContext, grad: Tensor) -> tuple[Tensor, None, None]:
        (keep,) = ctx.saved_tensors
        return grad.mul(keep).mul_(ctx.scale), None, None
