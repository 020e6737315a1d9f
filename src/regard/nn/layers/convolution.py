"""Convolutions over tokens, and weight normalization.

Neighbors are the tokens before and after a token in its own text, whatever columns they are in: padding between them is
skipped, and beyond the ends there are zeros. Each convolution is a linear map of a token's window:

    causal, kernel 3, dilation 2      t−4 . t−2 . t           the state holds the last 4 inputs
    otherwise                             t−2 . t . t+2

Weight normalization (Salimans & Kingma 2016): each row of a map is g·v/‖v‖, with a learned length g.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn.core.context import Context
from regard.nn.core.coords import Coords, last_of
from regard.nn.core.state import NOWHERE, State, join_padded, moving


class WeightNormLinear(nn.Linear):
    """A linear map whose rows have the learned lengths `gain`, and the directions of `weight`."""

    def __init__(self, read: int, width: int, bias: bool = True) -> None:
        super().__init__(read, width, bias)
        self.gain = nn.Parameter(self.weight.detach().norm(dim=1))

    def set_gain(self) -> None:
        """Make the map equal to `weight` as it is now; called without gradients."""
        self.gain.copy_(self.weight.norm(dim=1))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight * (self.gain / self.weight.norm(dim=1)).unsqueeze(1), self.bias)


class Past(NamedTuple):
    """The last inputs (b, s, d) of a convolution, and their coordinates."""

    inputs: Tensor
    at: Coords


@dataclasses.dataclass
class ConvolutionState(State):
    """The last inputs (rows, s, d) of each convolution, and the coordinates of the longest."""

    inputs: tuple[Tensor, ...] = moving()
    at: Coords = moving()

    def past(self, i: int, reach: int, ctx: Context) -> Past:
        """Return what convolution `i`, which reaches back this far, has read."""
        return Past(self.inputs[i], ctx.once(("past", self.at, reach), lambda: self.at.last(reach)))

    def join(self, other: Self) -> Self:
        """Put the last inputs of all rows into the same columns."""
        both = zip(self.inputs, other.inputs, strict=True)
        at = self.at.join(other.at, self.inputs[0].shape[0], other.inputs[0].shape[0], left=True)
        return dataclasses.replace(self, inputs=tuple(join_padded(a, b, 1, left=True) for a, b in both), at=at)


class TokenConvolution(nn.Module):
    """A convolution over tokens (b, n, d); `linear` maps a window (kernel · d) to the output."""

    def __init__(self, linear: nn.Linear, kernel: int, dilation: int = 1, *, causal: bool) -> None:
        super().__init__()
        self.linear, self.kernel, self.dilation, self.causal = linear, kernel, dilation, causal

    @property
    def reach(self) -> int:
        """Number of tokens between the first and the last that it reads."""
        return (self.kernel - 1) * self.dilation

    @property
    def read(self) -> int:
        """Width of its input."""
        return self.linear.in_features // self.kernel

    def forward(self, x: Tensor, ctx: Context, past: Past | None = None) -> tuple[Tensor, Tensor | None]:
        """Convolve the tokens that follow the `past`; also returns the last inputs, if there was one."""
        if past is None:
            return self.linear(self._windows(x, ctx.at, ctx, x.shape[1])), None
        at, inputs = ctx.extend_coords(past.at), torch.cat([past.inputs.to(x.dtype), x], 1)
        y = self.linear(self._windows(inputs, at, ctx, x.shape[1]))
        columns = ctx.once(("last", at, self.reach), lambda: last_columns(at, self.reach))
        if columns is None:
            return y, inputs[:, max(inputs.shape[1] - self.reach, 0) :]
        index = columns.clamp(min=0).expand(x.shape[0], -1).unsqueeze(-1)
        return y, torch.take_along_dim(inputs, index, 1)

    def _windows(self, inputs: Tensor, at: Coords, ctx: Context, n: int) -> Tensor:
        """Return the windows (b, n, kernel · d) of the last `n` tokens."""
        if self.kernel == 1:
            return inputs
        if at.contiguous and not at.packed and (self.causal or n == inputs.shape[1]):
            return self._slices(inputs, at, n)
        b = inputs.shape[0]
        key = ("taps", at, self.kernel, self.dilation, self.causal, n, b)
        index, there = ctx.once(key, lambda: find_taps(at, b, n, self.offsets))
        taken = torch.take_along_dim(inputs, index.flatten(1).unsqueeze(-1), 1).view(*index.shape, -1)
        return torch.where(there.unsqueeze(-1), taken, 0.0).flatten(2)

    @property
    def offsets(self) -> list[int]:
        """The tokens of a window, relative to its own: −2, −1, 0."""
        before = self.kernel - 1 if self.causal else (self.kernel - 1) // 2
        return [(i - before) * self.dilation for i in range(self.kernel)]

    def _slices(self, inputs: Tensor, at: Coords, n: int) -> Tensor:
        """Return the windows where neighbors are in the next columns."""
        if at.padded and not self.causal:
            inputs = torch.where(at.kept.unsqueeze(-1), inputs, 0.0)
        before = n - inputs.shape[1] - self.offsets[0]
        inputs = F.pad(inputs, (0, 0, before, self.offsets[-1]))
        return torch.cat([inputs[:, i * self.dilation : i * self.dilation + n] for i in range(self.kernel)], -1)


def start_convolutions(convolutions: list[TokenConvolution], rows: int) -> ConvolutionState:
    """Return the state before the first token."""
    inputs = tuple(c.linear.weight.new_zeros(rows, 0, c.read) for c in convolutions)
    return ConvolutionState(inputs, NOWHERE)


def advance(state: ConvolutionState, inputs: list[Tensor], reach: int, ctx: Context) -> ConvolutionState:
    """Return the state after a pass that left these inputs; `reach` is that of the longest convolution."""
    at = ctx.extend_coords(state.at)
    columns = last_columns(at, reach)
    return ConvolutionState(tuple(inputs), at.last(reach) if columns is None else at.take(columns))


def last_columns(at: Coords, reach: int) -> Tensor | None:
    """Return the columns of the last tokens of each row, −1 where there are too few; None if they are the last columns."""
    return None if at.contiguous and not at.padded else last_of(at.kept, reach)


def find_taps(at: Coords, rows: int, n: int, offsets: list[int]) -> tuple[Tensor, Tensor]:
    """Return the column (rows, n, kernel) of each token in the windows of the last `n`, and whether there is one."""
    kept = at.kept.expand(rows, -1)
    order = kept.to(torch.uint8).argsort(dim=1, descending=True, stable=True)  # tokens first
    rank = (kept.cumsum(1) - 1)[:, kept.shape[1] - n :]
    wanted = rank.unsqueeze(-1) + torch.tensor(offsets, device=rank.device)
    there = (wanted >= 0) & (wanted < kept.sum(1).view(-1, 1, 1)) & kept[:, kept.shape[1] - n :].unsqueeze(-1)
    index = torch.take_along_dim(order, wanted.clamp(0, kept.shape[1] - 1).flatten(1), 1).view_as(wanted)
    if at.doc is not None:
        doc = at.doc.expand(rows, -1)
        there = there & (
            torch.take_along_dim(doc, index.flatten(1), 1).view_as(index) == doc[:, doc.shape[1] - n :, None]
        )
    return index, there
