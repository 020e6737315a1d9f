"""Gated convolution: each token reads its neighbors.

Dauphin et al. 2017. A window of `kernel` tokens is mapped to two halves, of which one opens or closes the other:

    causal          t−2  t−1  t               y = (W w + b) · σ(V w + c),  w: the window
    otherwise       t−1  t    t+1

Layers of kernel k and dilations r₁, r₂, … see 1 + (k − 1)·Σ r tokens. Order is part of a window, so no positions are needed.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn.core.context import Context
from regard.nn.core.mixer import MIXERS, Act, Can, Mixer, MixerSpec, Site
from regard.nn.core.shape import sizes
from regard.nn.core.state import State
from regard.nn.layers.convolution import ConvolutionState, TokenConvolution, advance, start_convolutions
from regard.spec import Count, spec


@MIXERS.add
@spec
class GatedConvolution(MixerSpec):
    """Convolution with a gated linear unit (Dauphin et al. 2017): a token reads its neighbors."""

    kernel: Count = 3
    """Tokens of a window: the last ones where the stack is causal, otherwise those on both sides."""
    dilation: Count = 1
    """Distance of the tokens of a window."""
    can = Can(cross=False, rewind=False, weights=False, positions=frozenset[Act]())

    def build(self, site: Site) -> Mixer:
        return GatedConvolutionMixer(self, site)


class GatedConvolutionMixer(Mixer):
    def __init__(self, spec: GatedConvolution, site: Site) -> None:
        super().__init__(site)
        both = nn.Linear(spec.kernel * site.width, 2 * site.width)
        self.conv = TokenConvolution(both, spec.kernel, spec.dilation, causal=site.causal)

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        sizes(x, "b n d", d=self.site.width)
        before = state if isinstance(state, ConvolutionState) else None
        past = None if before is None else before.past(0, self.conv.reach, ctx)
        y, inputs = self.conv(x, ctx, past)
        after = None if before is None or inputs is None else advance(before, [inputs], self.conv.reach, ctx)
        return F.glu(y), after

    def start(self, rows: int, capacity: int) -> ConvolutionState:
        return start_convolutions([self.conv], rows)

    def state_numbers(self, n: int) -> float:
        return float(min(self.conv.reach, n) * self.site.width) if self.site.causal else 0.0
