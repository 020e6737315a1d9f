"""Performer: linear attention by random features.

FAVOR+ (Choromanski et al. 2020).

With q and k divided by e^¼, exp(q·k) is the mean of φ(q)·φ(k) over random directions ω, where φ(x) = exp(ω·x − |x|²/2).
Features are scaled to at most one, and their size goes beside them as a logarithm.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from regard.errors import SpecError
from regard.nn.core.mixer import MIXERS, Site
from regard.nn.mixers.linear_attention import KernelAttention, KernelMixer
from regard.spec import Count, spec

WIDEST = 2048
"""Maximum width of a head with orthogonal directions, which need a square matrix."""


@MIXERS.add(also=("favor", "favor+"))
@spec
class Performer(KernelAttention):
    """Softmax (or relu) attention estimated from random features, by default d_k·ln d_k of them.

    In training they are redrawn every `redraw` steps (0: never).
    """

    features: Count | None = None
    kernel: Literal["softmax", "relu"] = "softmax"
    orthogonal: bool = True
    redraw: Annotated[int, Field(ge=0)] = 1000

    def build(self, site: Site) -> PerformerMixer:
        return PerformerMixer(self, site)

    def head_shape(self, width: int) -> tuple[int, int]:
        _, wide = super().head_shape(width)
        if self.orthogonal and wide > WIDEST:
            raise SpecError(f"orthogonal directions are made for heads of up to {WIDEST}, got {wide}; take more heads")
        return self.heads, wide


class PerformerMixer(KernelMixer):
    def __init__(self, spec: Performer, site: Site) -> None:
        super().__init__(spec, site)
        self.kernel, self.orthogonal, self.redraw = spec.kernel, spec.orthogonal, spec.redraw
        self.features = r = spec.features or max(round(self.head_width * math.log(self.head_width)), self.head_width)
        self.omega: Tensor
        self.register_buffer("omega", directions(r, self.head_width, orthogonal=spec.orthogonal))

    def before_step(self, step: int) -> None:
        if self.redraw and step > 0 and step % self.redraw == 0:
            self.omega.copy_(directions(*self.omega.shape, orthogonal=self.orthogonal))

    def _features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return φ(x) divided by its largest feature, (b, h, n, r), and the logarithm of that feature, (b, h, n)."""
        x = x.to(torch.promote_types(x.dtype, torch.float32)) * self.head_width**-0.25
        z = x @ self.omega.to(x.dtype).mT
        if self.kernel == "relu":
            return z.relu() + 1e-3, torch.zeros_like(z[..., 0])
        largest = z.detach().amax(-1, keepdim=True)  # any number works: it cancels
        return (z - largest).exp(), largest.squeeze(-1) - x.square().sum(-1) / 2


def directions(r: int, e: int, *, orthogonal: bool) -> Tensor:
    """Draw `r` random directions, each distributed as N(0, I_e); every `e` of them are orthogonal."""
    free = torch.randn(r, e)
    if not orthogonal:
        return free
    q, upper = torch.linalg.qr(torch.randn(-(-r // e), e, e))
    signs = upper.diagonal(dim1=-2, dim2=-1).sign()  # without them q is not uniform and the estimate is biased
    rows: Tensor = (q * signs.unsqueeze(-2)).mT.reshape(-1, e)[:r]
    return rows.mul(free.norm(dim=1, keepdim=True))
