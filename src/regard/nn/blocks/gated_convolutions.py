"""Gated convolutions with multi-step attention: ConvS2S.

Gehring et al. 2017. Maps lead from the embeddings to the layers and back. Every sum of two terms is multiplied by √0.5.

    encoder    e ─ map ─┬─ conv ─ GLU ─ + ─ … ─ map ─ z          keys z, values z + e
                        └───────────────┘
    decoder    g ─ map ─┬─ conv ─ GLU ─ h ── + ─ + ─ … ─ map ─ out
                        │               └ c ─┘   │
                        └────────────────────────┘        c: where (W h + b) + g looks, in every layer

A context is a mean of m values and is multiplied by √m, which keeps its variance. Since every layer of the decoder reads z,
its gradient is divided by the number of those layers, as in the paper (the authors' code divides by twice that number); the
gradient of e is not divided.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import SpecError
from regard.nn.attention.attend import fold, masked_softmax, unfold
from regard.nn.blocks.body import BODIES, MAX_LAYERS, Body, BodySpec
from regard.nn.core.autograd import FunctionContext
from regard.nn.core.context import Context, Memory
from regard.nn.core.mask import Everything, visible
from regard.nn.core.mixer import Act, Can, Site
from regard.nn.core.shape import sizes
from regard.nn.core.state import State
from regard.nn.layers.convolution import (
    ConvolutionState,
    Past,
    TokenConvolution,
    WeightNormLinear,
    advance,
    start_convolutions,
)
from regard.nn.layers.dropout import Dropout
from regard.spec import Count, Share, spec

HALF = math.sqrt(0.5)
"""Keeps the variance of a sum of two."""


@BODIES.add
@spec
class GatedConvolutions(BodySpec):
    """Convolutions with gated linear units; as a decoder, each layer attends to the source (ConvS2S)."""

    widths: tuple[Count, ...]
    """Width of each layer."""
    kernels: tuple[Count, ...]
    """Kernel of each layer."""
    out: Count | None = None
    """Width of the output; by default that of the embeddings."""
    attention: bool = False
    """Attend to the source in every layer."""
    dropout: Share = 0.0
    """Dropout on the input of every convolution, and on the output of a decoder."""
    weight_norm: bool = True
    """Learn the lengths of the rows of all maps apart from their directions."""
    causal: bool = False
    can = Can(cross=False, rewind=False, positions=frozenset[Act]())

    def __post_init__(self) -> None:
        if not self.widths or len(self.widths) != len(self.kernels):
            raise SpecError(
                f"widths and kernels need one entry per layer, got {len(self.widths)} widths and {len(self.kernels)} kernels"
            )
        if len(self.widths) > MAX_LAYERS:
            raise SpecError(f"widths has {len(self.widths):,} layers; at most {MAX_LAYERS:,} are allowed")
        if self.attention and not self.causal:
            raise SpecError("attention reads an encoder, which is for a decoder; set causal: true")

    def build(self, site: Site) -> Body:
        return GatedConvolutionsBody(self, dataclasses.replace(site, causal=self.causal))

    def leaves(self, width: int, memory: int = 0) -> int:
        return self.out or width

    @property
    def readers(self) -> int:
        return len(self.widths) if self.attention else 0

    def weight_paths(self, path: str) -> list[str]:
        return [f"{path}.blocks.{i}.cross" for i in range(self.readers)]

    def refusals(self, site: Site) -> list[str]:
        out = super().refusals(site)
        if self.attention and site.memory and site.memory != site.width:
            out.append(
                f"{site.path} adds embeddings of width {site.width} to queries for keys of width {site.memory}; make them equal"
            )
        if site.readers and self.leaves(site.width) != site.width:
            out.append(f"{site.path}.out is {self.out}, and is added to embeddings of width {site.width}; leave it out")
        return out


class GatedConvolutionsBody(Body):
    def __init__(self, spec: GatedConvolutions, site: Site) -> None:
        super().__init__()
        self.spec, self.site = spec, site
        self.enter = linear(spec, site.width, spec.widths[0])
        widths = [spec.widths[0], *spec.widths[:-1]]
        self.blocks = nn.ModuleList(
            GatedLayer(spec, site.at(f"blocks.{i}", layer=i), read, *layer)
            for i, (read, *layer) in enumerate(zip(widths, spec.widths, spec.kernels, strict=True))
        )
        self.leave = linear(spec, spec.widths[-1], spec.leaves(site.width))
        self.dropout = Dropout(spec.dropout)

    def initialize(self) -> None:
        """Keep the variance through each layer (section 3.5): a GLU leaves a quarter of it, dropout before a map 1 / p."""
        keep = 1.0 - self.spec.dropout
        for name, part in self.named_modules():
            if isinstance(part, nn.Linear):
                gain = 4.0 * keep if name.endswith(".conv.linear") else keep if name == "enter" else 1.0
                nn.init.normal_(part.weight, std=math.sqrt(gain / part.in_features))
                if isinstance(part, WeightNormLinear):
                    part.set_gain()

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        sizes(x, "b n d", d=self.site.width)
        if self.spec.attention and ctx.memory is None:
            raise SpecError(f"{self.site.path} reads a memory, and none was given; give the model a source")
        before = state if isinstance(state, ConvolutionState) else None
        y, new = self.enter(x), []
        for i, block in enumerate(self._layers):
            past = None if before is None else before.past(i, block.conv.reach, ctx)
            out, inputs = block(y, x, ctx, past)
            y = ctx.tape.at(block.path, out)
            new += [] if inputs is None else [inputs]
        y = self.leave(y)
        y = ctx.tape.at(self.site.path, self.dropout(y) if self.spec.causal else y)
        reach = max(block.conv.reach for block in self._layers)
        return y, None if before is None else advance(before, new, reach, ctx)

    def encode(self, x: Tensor, ctx: Context) -> Memory:
        z, _ = self(x, ctx)
        z = scale_gradient(z, 1.0 / max(self.site.readers, 1))
        return Memory(z, (z + x) * HALF, ctx.at)

    @property
    def _layers(self) -> list[GatedLayer]:
        return list(self.blocks)  # type: ignore[arg-type]

    def start(self, rows: int, capacity: int) -> ConvolutionState:
        return start_convolutions([block.conv for block in self._layers], rows)

    def flops(self, n: int, m: int) -> float:
        maps = sum(2.0 * part.weight.numel() for part in self.modules() if isinstance(part, nn.Linear))
        return maps + self.spec.readers * 4.0 * m * self.site.memory

    def state_numbers(self, n: int) -> float:
        return float(sum(min(c.conv.reach, n) * c.conv.read for c in self._layers)) if self.spec.causal else 0.0


class GatedLayer(nn.Module):
    """One layer: convolution, gated linear unit, attention in a decoder, residual sum."""

    def __init__(self, spec: GatedConvolutions, site: Site, read: int, width: int, kernel: int) -> None:
        super().__init__()
        self.path, self.dropout = site.path, Dropout(spec.dropout)
        self.conv = TokenConvolution(linear(spec, kernel * read, 2 * width), kernel, causal=spec.causal)
        self.shortcut = linear(spec, read, width) if read != width else None
        self.query = linear(spec, width, site.memory) if spec.attention else None
        self.out = linear(spec, site.memory, width) if spec.attention else None

    def forward(self, y: Tensor, first: Tensor, ctx: Context, past: Past | None) -> tuple[Tensor, Tensor | None]:
        """Run the layer; `first` are the embeddings that queries contain."""
        convolved, inputs = self.conv(self.dropout(y), ctx, past)
        h = F.glu(convolved)
        if self.query is not None and self.out is not None:
            assert ctx.memory is not None
            context = self._look((self.query(h) + first) * HALF, ctx, ctx.memory)
            h = (self.out(context) + h) * HALF
        return (h + (y if self.shortcut is None else self.shortcut(y))) * HALF, inputs

    def _look(self, query: Tensor, ctx: Context, memory: Memory) -> Tensor:
        rows, path, at = query.shape[0], f"{self.path}.cross", memory.at
        q = fold(query.unsqueeze(1), memory.keys.shape[0]).squeeze(1)  # hypotheses of a sentence share its keys
        keep = ctx.once(("source", at, ctx.at), lambda: visible(Everything(), ctx.at, at))
        weights = masked_softmax(q @ memory.keys.to(q.dtype).mT, keep)
        values = memory.values.to(weights.dtype)
        if keep is not None:
            weights = weights * keep.any(-1, keepdim=True)  # nothing may be visible
            values = torch.where(at.kept.unsqueeze(-1), values, 0.0)
        ctx.tape.plan(path, "plain: one head, keys and values differ")
        ctx.tape.keep(f"{path}.weights", unfold(weights.unsqueeze(1), rows))
        count = math.sqrt(at.n) if keep is None else keep.sum(-1, keepdim=True).to(weights.dtype).sqrt()
        return unfold((weights @ values * count).unsqueeze(1), rows).squeeze(1)


def linear(spec: GatedConvolutions, read: int, width: int) -> nn.Linear:
    """Build a map, with weight normalization if the spec says so."""
    return WeightNormLinear(read, width) if spec.weight_norm else nn.Linear(read, width)


def scale_gradient(x: Tensor, scale: float) -> Tensor:
    """Return x, whose gradient is multiplied by `scale`."""
    return x if scale == 1.0 else _ScaleGradient.apply(x, scale)  # type: ignore[no-untyped-call]


class _ScaleContext(FunctionContext, Protocol):
    scale: float


class _ScaleGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _ScaleContext, x: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx: _ScaleContext, grad: Tensor) -> tuple[Tensor, None]:
        return grad * ctx.scale, None
