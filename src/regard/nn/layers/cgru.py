"""CGRU: a gated recurrent unit made of convolutions.

Kaiser & Sutskever 2015. The state is a grid of n columns (one per token) and a few rows, each cell a vector. One step changes
all cells at once, each by its neighbors:

    u = σ'(U'∗s + B')    r = σ'(U''∗s + B'')    s ← u·s + (1 − u)·tanh(U∗(r·s) + B)

σ'(x) = 1.2·σ(x) − 0.1, cut to [0, 1], so that gates can be fully open or closed. In a decoder, the convolutions also read the
output tape p, a grid like s: U∗(r·s) + W∗p + B, and so on (Kaiser & Bengio 2016).

Grids are (b, width, columns, rows), in memory with the width last (`GRID`), which convolutions read fastest. Columns behind
the last token of a row are zero, as what is beyond the edges.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn.core.coords import Coords
from regard.nn.core.rng import generator
from regard.nn.layers.dropout import dropout

KERNEL = 3
"""Columns and rows that a cell reads."""
CUTOFF = 1.2
GRID = torch.channels_last
"""Layout of grids and kernels in memory."""
INIT_FACTOR = 1.8
"""Kernels start from U(−a, a), a = factor · √(3 / inputs), as in the authors' code."""


class GridConvolution(nn.Module):
    """A convolution over a grid, in several `copies`."""

    def __init__(self, read: int, width: int, copies: int = 1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(copies, width, read, KERNEL, KERNEL))
        self.bias = nn.Parameter(torch.zeros(copies, width))

    def initialize(self, bias: float) -> None:
        """Draw the kernels, and set the bias; called without gradients."""
        reach = INIT_FACTOR * math.sqrt(3 / self.weight[0, 0].numel())
        nn.init.uniform_(self.weight, -reach, reach)
        nn.init.constant_(self.bias, bias)

    def kernel(self, copy: int | None) -> tuple[Tensor, Tensor]:
        """Return weight and bias of a copy; None: the mean of all copies."""
        weight, bias = (part.mean(0) if copy is None else part[copy] for part in (self.weight, self.bias))
        return weight.contiguous(memory_format=GRID), bias

    def spread(self) -> Tensor:
        """Return the sum of squared distances of the copies to their mean."""
        parts = (self.weight, self.bias)
        return torch.stack([(part - part.mean(0, keepdim=True)).square().sum() for part in parts]).sum()


class Kernels(NamedTuple):
    """Kernels of one step of a CGRU: weight and bias of both gates, and of the candidate."""

    gates: tuple[Tensor, Tensor]
    candidate: tuple[Tensor, Tensor]


class CGRU(nn.Module):
    """A convolutional gated recurrent unit; with `tape` it reads a second grid."""

    def __init__(self, width: int, *, copies: int = 1, tape: bool = False) -> None:
        super().__init__()
        read = 2 * width if tape else width
        self.gates, self.candidate = GridConvolution(read, 2 * width, copies), GridConvolution(read, width, copies)

    def initialize(self) -> None:
        """Gates start open: the state is kept."""
        self.gates.initialize(1.0)
        self.candidate.initialize(0.0)

    def kernels(self, copy: int | None = None) -> Kernels:
        return Kernels(self.gates.kernel(copy), self.candidate.kernel(copy))

    def spread(self) -> Tensor:
        return self.gates.spread() + self.candidate.spread()

    def flops(self, rows: int) -> float:
        """FLOPs of one step, per column."""
        return 2.0 * rows * (self.gates.weight[0].numel() + self.candidate.weight[0].numel())


def step_cgru(s: Tensor, kernels: Kernels, tape: Tensor | None = None) -> Tensor:
    """Return the state after one step of a CGRU."""
    update, reset = open_gate(_convolve(s, kernels.gates, tape)).chunk(2, 1)
    candidate = _convolve(reset * s, kernels.candidate, tape).tanh()
    return torch.lerp(candidate.to(s.dtype), s, update.to(s.dtype))


def open_gate(x: Tensor) -> Tensor:
    """The sigmoid with cutoff."""
    return (CUTOFF * x.sigmoid() - (CUTOFF - 1) / 2).clamp(0.0, 1.0)


def _convolve(s: Tensor, kernel: tuple[Tensor, Tensor], tape: Tensor | None) -> Tensor:
    return F.conv2d(s if tape is None else torch.cat([s, tape], 1), *kernel, padding=KERNEL // 2)


def to_columns(x: Tensor, at: Coords) -> Tensor:
    """Move the tokens (b, n, d) of each row to its first columns, in order; zeros behind them."""
    if not at.contiguous:
        kept = at.kept.expand(x.shape[0], -1)
        order = kept.to(torch.uint8).argsort(dim=1, descending=True, stable=True)
        x, kept = torch.take_along_dim(x, order.unsqueeze(-1), 1), torch.take_along_dim(kept, order, 1)
        return torch.where(kept.unsqueeze(-1), x, 0.0)
    return torch.where(at.kept.unsqueeze(-1), x, 0.0) if at.padded else x


def from_columns(y: Tensor, at: Coords) -> Tensor:
    """Move columns (b, n, d) back to the places of their tokens; zeros at padding."""
    if not at.contiguous:
        rank = at.kept.expand(y.shape[0], -1).cumsum(1) - 1
        y = torch.take_along_dim(y, rank.clamp(min=0).unsqueeze(-1), 1)
    return torch.where(at.kept.unsqueeze(-1), y, 0.0) if at.padded else y


def count_columns(at: Coords) -> Tensor | None:
    """Return the number of tokens (b | 1,) of each row; None: all columns are tokens."""
    return at.kept.sum(1) if at.padded else None


def drop_cells(cells: Tensor, p: float | Tensor) -> Tensor:
    """Dropout on a grid with the probability `p`, or with that of each row (b,)."""
    if not isinstance(p, Tensor):
        return dropout(cells, p)
    p = p.to(cells.dtype).view(-1, 1, 1, 1)
    drawn = torch.rand(cells.permute(0, 2, 3, 1).shape, generator=generator(), dtype=torch.float32, device="cpu")
    return torch.where(drawn.permute(0, 3, 1, 2).to(cells.device) >= p, cells / (1 - p), 0.0)
