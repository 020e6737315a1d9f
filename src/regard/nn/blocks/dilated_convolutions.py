"""Dilated convolutions: ByteNet.

Kalchbrenner et al. 2016. The stream has 2d channels, the inside of a block d:

    relu              ┬─ LN ReLU 1×1 ─ LN ReLU conv ─ LN ReLU 1×1 ─ + ─
                      └─────────────────────────────────────────────┘
    multiplicative    the middle is a multiplicative unit: σ(a)·tanh(σ(b)·h + σ(c)·tanh(u)), where a, b, c, u are convolutions
                      of h, each normalized

The decoder is stacked on the encoder: at each position it reads its token and what the encoder left at that same position,
added. Dynamic unfolding: the task appends tokens to the source, so that the encoder has about as many columns as the
target; past them, the decoder goes on without.

One token reaches 1 + (k − 1) · Σ dilations tokens.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from regard.errors import SpecError, StateError
from regard.nn.blocks.body import BODIES, MAX_LAYERS, Body, BodySpec
from regard.nn.core.context import Context, Memory
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import Act, Can, Site
from regard.nn.core.shape import sizes
from regard.nn.core.state import State
from regard.nn.layers.convolution import ConvolutionState, Past, TokenConvolution, advance, start_convolutions
from regard.nn.layers.dropout import Dropout
from regard.nn.layers.norm import LayerNorm, NormSpec
from regard.spec import Count, Share, spec

Dilation = Annotated[int, Field(ge=1, le=1 << 16)]
"""A distance between the tokens of a window; no text needs more, and a text is padded by it."""


@BODIES.add
@spec
class DilatedConvolutions(BodySpec):
    """Residual blocks of dilated convolutions; as a decoder, it reads the source position by position (ByteNet)."""

    dilations: tuple[Dilation, ...]
    """Dilation of each block."""
    kernel: Count = 3
    unit: Literal["relu", "multiplicative"] = "relu"
    """Inside of a block: ReLUs (translation) or a multiplicative unit (language models)."""
    stacked: bool = False
    """Read what the encoder left at the same position."""
    norm: NormSpec = LayerNorm()
    dropout: Share = 0.0
    """Dropout on the output, after the last ReLU."""
    hidden_dropout: Share = 0.0
    """Dropout on what each block adds to the stream."""
    causal: bool = False
    can = Can(cross=False, rewind=False, weights=False, positions=frozenset[Act]())

    def __post_init__(self) -> None:
        if not self.dilations:
            raise SpecError("dilations needs one entry per block, got none")
        if len(self.dilations) > MAX_LAYERS:
            raise SpecError(f"dilations has {len(self.dilations):,} blocks; at most {MAX_LAYERS:,} are allowed")
        if self.stacked and not self.causal:
            raise SpecError("stacked reads an encoder, which is for a decoder; set causal: true")

    @property
    def receptive_field(self) -> int:
        """Number of tokens that an output depends on."""
        return 1 + (self.kernel - 1) * sum(self.dilations)

    def build(self, site: Site) -> Body:
        return DilatedConvolutionsBody(self, dataclasses.replace(site, causal=self.causal))

    @property
    def readers(self) -> int:
        return int(self.stacked)

    def refusals(self, site: Site) -> list[str]:
        out = super().refusals(site)
        if site.width % 2:
            out.append(f"{site.path} has blocks half as wide as the stream, whose width is {site.width}; make it even")
        if self.stacked and site.memory and site.memory != site.width:
            out.append(
                f"{site.path} of width {site.width} is stacked on an encoder of width {site.memory}; make them equal"
            )
        return out


class DilatedConvolutionsBody(Body):
    def __init__(self, spec: DilatedConvolutions, site: Site) -> None:
        super().__init__()
        self.spec, self.site = spec, site
        if faults := spec.refusals(site):
            raise SpecError(*faults)
        kind = DilatedBlock if spec.unit == "relu" else MultiplicativeBlock
        self.blocks = nn.ModuleList(
            kind(spec, site.at(f"blocks.{i}"), dilation) for i, dilation in enumerate(spec.dilations)
        )
        self.norm = None if site.readers else spec.norm.build(site.width)  # a decoder's blocks normalize what they read
        self.dropout = Dropout(spec.dropout)

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        sizes(x, "b n d", d=self.site.width)
        if self.spec.stacked:
            if ctx.memory is None:
                raise SpecError(f"{self.site.path} reads a memory, and none was given; give the model a source")
            x = x + read_columns(ctx.memory, ctx.at, x.shape[0]).to(x.dtype)
            ctx.tape.plan(self.site.path, "stacked: the source at the same position")
        before = state if isinstance(state, ConvolutionState) else None
        new = []
        for i, block in enumerate(self._layers):
            out, inputs = block(x, ctx, None if before is None else before.past(i, block.conv.reach, ctx))
            x = ctx.tape.at(block.path, out)
            new += [] if inputs is None else [inputs]
        x = x if self.norm is None else self.dropout(self.norm(x).relu())
        reach = max(block.conv.reach for block in self._layers)
        return ctx.tape.at(self.site.path, x), None if before is None else advance(before, new, reach, ctx)

    @property
    def _layers(self) -> list[DilatedBlock]:
        return list(self.blocks)  # type: ignore[arg-type]

    def start(self, rows: int, capacity: int) -> ConvolutionState:
        return start_convolutions([block.conv for block in self._layers], rows)

    def flops(self, n: int, m: int) -> float:
        return sum(2.0 * part.weight.numel() for part in self.modules() if isinstance(part, nn.Linear))

    def state_numbers(self, n: int) -> float:
        return float(sum(min(c.conv.reach, n) * c.conv.read for c in self._layers)) if self.spec.causal else 0.0


class DilatedBlock(nn.Module):
    """A residual block with ReLUs."""

    def __init__(self, spec: DilatedConvolutions, site: Site, dilation: int) -> None:
        super().__init__()
        width, self.path = site.width // 2, site.path
        self.down_norm, self.down = spec.norm.build(site.width), nn.Linear(site.width, width)
        self.conv = self._convolution(spec, width, dilation)
        self.up_norm, self.up = spec.norm.build(width), nn.Linear(width, site.width)
        self.dropout = Dropout(spec.hidden_dropout)

    def _convolution(self, spec: DilatedConvolutions, width: int, dilation: int) -> TokenConvolution:
        self.conv_norm = spec.norm.build(width)
        return TokenConvolution(nn.Linear(spec.kernel * width, width), spec.kernel, dilation, causal=spec.causal)

    def forward(self, x: Tensor, ctx: Context, past: Past | None) -> tuple[Tensor, Tensor | None]:
        h = self.down(self.down_norm(x).relu())
        h, inputs = self.convolve(h, ctx, past)
        return x + self.dropout(self.up(self.up_norm(h).relu())), inputs

    def convolve(self, h: Tensor, ctx: Context, past: Past | None) -> tuple[Tensor, Tensor | None]:
        """The middle of the block."""
        return self.conv(self.conv_norm(h).relu(), ctx, past)  # type: ignore[no-any-return]


class MultiplicativeBlock(DilatedBlock):
    """A residual block with a multiplicative unit."""

    def _convolution(self, spec: DilatedConvolutions, width: int, dilation: int) -> TokenConvolution:
        self.gate_norms = nn.ModuleList(spec.norm.build(width) for _ in range(4))
        return TokenConvolution(nn.Linear(spec.kernel * width, 4 * width), spec.kernel, dilation, causal=spec.causal)

    def convolve(self, h: Tensor, ctx: Context, past: Past | None) -> tuple[Tensor, Tensor | None]:
        y, inputs = self.conv(h, ctx, past)
        a, b, c, u = (norm(part) for norm, part in zip(self.gate_norms, y.chunk(4, -1), strict=True))
        return a.sigmoid() * torch.tanh(b.sigmoid() * h + c.sigmoid() * u.tanh()), inputs


def read_columns(memory: Memory, at: Coords, rows: int) -> Tensor:
    """Return what the encoder left at each position (rows, n, d): zeros past its end."""
    sentences, m, width = memory.values.shape
    if sentences == 0 or rows % sentences:
        raise StateError(f"{rows} hypotheses cannot be divided among the {sentences} sentences of a memory")
    if m == 0:
        return memory.values.new_zeros(rows, at.n, width)
    sentence = torch.arange(rows, device=at.pos.device) // (rows // sentences)
    source = memory.at if rows == sentences else memory.at.select(sentence)
    if source.first == 0 and not at.packed:
        column, there = at.pos, at.kept & (at.pos < (source.kept.sum(1, keepdim=True) if source.padded else m))
    else:
        same = at.pos.unsqueeze(2) == source.pos.unsqueeze(1)
        if at.doc is not None and source.doc is not None:
            same = same & (at.doc.unsqueeze(2) == source.doc.unsqueeze(1))
        there, column = (same & at.kept.unsqueeze(2)).max(2)
    values = memory.values[sentence.unsqueeze(1), column.clamp(0, m - 1).expand(rows, -1)]
    return torch.where(there.unsqueeze(-1), values, 0.0)
