"""Compression of old memories: `rate` become one.

Compressive Transformer (Rae et al. 2019, §3.2).

    pooling       the largest or the mean of every `rate` memories
    convolution   one linear map of every `rate` memories, or a tree of pairs (dilated convolutions)
    most_used     the memories that drew the most attention so far, as they are

Learned compressors have a loss of their own: the loss of the model does not reach them, and theirs reaches nothing else.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import SpecError
from regard.nn.core.coords import PAD, Coords
from regard.registry import Registry
from regard.spec import Count, Spec, spec

COMPRESSIONS: Registry[type[CompressionSpec]] = Registry("compression")


class CompressionSpec(Spec):
    """Compression of older memories: `rate` into one, of which the last `slots` are kept."""

    registry = COMPRESSIONS
    slots: int
    rate: int

    def build(self, width: int) -> Compressor:
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class OldMemories:
    """Memories that are compressed together, oldest first: inputs (b, l, d), coordinates, attention received."""

    x: Tensor
    at: Coords
    used: Tensor | None = None


class Compressor(nn.Module):
    """`(old) -> (small, at)`; where `at` says which are there and of which document, its positions yet to be given."""

    loss: Literal["attention", "autoencode"] | None = None
    uses = False
    """True if it needs the attention that memories received."""

    def __init__(self, rate: int) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, old: OldMemories) -> tuple[Tensor, Coords]:
        raise NotImplementedError

    def autoencoding_loss(self, old: OldMemories, small: Tensor) -> Tensor:
        """Return the error of a learned decoder that reconstructs the old memories from the compressed ones."""
        raise NotImplementedError


@COMPRESSIONS.add
@spec
class Pooling(CompressionSpec):
    """The mean or the maximum of every `rate` memories."""

    slots: Count
    rate: Count = 4
    by: Literal["mean", "max"] = "mean"

    def build(self, width: int) -> Compressor:
        return PoolingCompressor(self)


@COMPRESSIONS.add
@spec
class Convolution(CompressionSpec):
    """A convolution whose stride is its width, or with `dilated` one of width two for each doubling of the stride.

    It is trained to leave the attention of the layer unchanged, or to reconstruct the memories.
    """

    slots: Count
    rate: Count = 4
    dilated: bool = False
    loss: Literal["attention", "autoencode"] = "attention"

    def __post_init__(self) -> None:
        if self.dilated and self.rate == 1:
            raise SpecError("dilated convolutions join two memories at a time: rate should be at least 2, got 1")

    def build(self, width: int) -> Compressor:
        return ConvolutionCompressor(self, width)


@COMPRESSIONS.add
@spec
class MostUsed(CompressionSpec):
    """Keeps the memories that received the most attention: one of `rate`, chosen among all that leave."""

    slots: Count
    rate: Count = 4

    def build(self, width: int) -> Compressor:
        return MostUsedCompressor(self.rate)


class PoolingCompressor(Compressor):
    def __init__(self, spec: Pooling) -> None:
        super().__init__(spec.rate)
        self.by = spec.by

    def forward(self, old: OldMemories) -> tuple[Tensor, Coords]:
        there, at = windows(old.at, self.rate)
        x, hidden = group(old.x, self.rate), ~there.unsqueeze(-1)
        if self.by == "mean":
            return x.masked_fill(hidden, 0.0).sum(2) / there.sum(2).clamp(min=1).unsqueeze(-1), at
        empty = ~there.any(2, keepdim=True)
        return x.masked_fill(hidden, -torch.inf).amax(2).masked_fill(empty, 0.0), at


class ConvolutionCompressor(Compressor):
    def __init__(self, spec: Convolution, width: int) -> None:
        super().__init__(spec.rate)
        self.loss, self.fan = spec.loss, 2 if spec.dilated else spec.rate
        steps = (spec.rate - 1).bit_length() if spec.dilated else 1
        self.room = self.fan**steps - spec.rate
        self.maps = nn.ModuleList(nn.Linear(self.fan * width, width, bias=False) for _ in range(steps))
        self.decoder = nn.Linear(width, spec.rate * width) if spec.loss == "autoencode" else None

    def forward(self, old: OldMemories) -> tuple[Tensor, Coords]:
        """Compute only what the last output of a window depends on in a dilated convolution: pairs, then pairs of pairs."""
        there, at = windows(old.at, self.rate)
        x = group(old.x, self.rate).masked_fill(~there.unsqueeze(-1), 0.0)
        x = F.pad(x, (0, 0, self.room, 0))
        for i, part in enumerate(self.maps):
            x = part(group(F.relu(x) if i else x, self.fan, 2).flatten(-2))
        return x.squeeze(2), at

    def autoencoding_loss(self, old: OldMemories, small: Tensor) -> Tensor:
        assert self.decoder is not None
        there, _ = windows(old.at, self.rate)
        old_x = group(old.x, self.rate)
        off = self.decoder(small).view_as(old_x) - old_x
        return masked_mean(off.square().mean(-1), there)


class MostUsedCompressor(Compressor):
    uses = True

    def forward(self, old: OldMemories) -> tuple[Tensor, Coords]:
        assert old.used is not None
        there = old.at.kept.expand_as(old.used)
        best = old.used.masked_fill(~there, -1.0).topk(old.x.shape[1] // self.rate, 1).indices
        if old.at.padded:  # a row with fewer leaving memories keeps fewer
            rank = torch.arange(best.shape[1], device=best.device)
            best = best.where(rank < there.sum(1, keepdim=True) // self.rate, -1)
        best = best.sort(1).values
        index = best.clamp(min=0)
        small = old.x.gather(1, index.unsqueeze(-1).expand(-1, -1, old.x.shape[2]))
        pos = old.at.pos.expand_as(there).gather(1, index).where(best >= 0, PAD)
        doc = None if old.at.doc is None else old.at.doc.expand_as(there).gather(1, index)
        return small, Coords(pos, doc, padded=old.at.padded)


def group(x: Tensor, count: int, dim: int = 1) -> Tensor:
    """Split a dimension into groups of `count`."""
    return x.reshape(*x.shape[:dim], -1, count, *x.shape[dim + 1 :])


def windows(at: Coords, rate: int) -> tuple[Tensor, Coords]:
    """Return which of every `rate` tokens count (b | 1, r, c), and which windows exist; each belongs to its last document."""
    there, doc = group(at.kept, rate), None
    if at.doc is not None:
        docs = group(at.doc, rate)
        there = there.expand(docs.shape)
        last = (there * torch.arange(1, rate + 1, device=there.device)).argmax(2, keepdim=True)
        there = there & (docs == docs.gather(2, last))
        doc = docs.gather(2, last).squeeze(2)
    some = there.any(2)
    return there, Coords(torch.where(some, 0, PAD), doc, padded=at.padded)


def number_slots(slots: Coords, recent: Coords) -> Coords:
    """Number slots backwards from the first recent token; these are their positions."""
    if recent.first is not None and not (recent.padded or recent.packed or slots.padded):
        return Coords.span(slots.n, recent.first - slots.n, device=recent.pos.device)
    there, first = slots.kept, recent.kept.to(torch.int8).argmax(1, keepdim=True)
    if slots.doc is not None and recent.doc is not None:
        there = there & (slots.doc == recent.doc.gather(1, first.expand(recent.doc.shape[0], 1)))
    back = there.flip(1).cumsum(1).flip(1)
    pos = torch.where(there, recent.pos.gather(1, first) - back, PAD)
    return Coords(pos, slots.doc, padded=True)


def masked_mean(x: Tensor, there: Tensor) -> Tensor:
    """Return the mean of the elements that are there."""
    there = there.expand_as(x)
    return x.masked_fill(~there, 0.0).sum() / there.sum().clamp(min=1)
