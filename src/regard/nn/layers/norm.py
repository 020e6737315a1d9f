"""Norms: LayerNorm and RMSNorm.

Ba et al. 2016; Zhang & Sennrich 2019.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.nn.core.shape import device_kind
from regard.registry import Registry
from regard.spec import Spec, spec

NORMS: Registry[type[NormSpec]] = Registry("norm")


class NormSpec(Spec):
    """Normalization of a vector."""

    registry = NORMS

    def build(self, width: int) -> nn.Module:
        raise NotImplementedError


@NORMS.add
@spec
class LayerNorm(NormSpec):
    """Zero mean, unit variance, then a learned scale and shift."""

    eps: float = 1e-5
    bias: bool = True

    def build(self, width: int) -> nn.Module:
        return _LayerNorm(width, eps=self.eps, bias=self.bias)


@NORMS.add
@spec
class RMSNorm(NormSpec):
    """Unit root-mean-square, then a learned scale: no mean, no shift."""

    eps: float = 1e-6
    kind = "rms_norm"

    def build(self, width: int) -> nn.Module:
        return _RMSNorm(width, eps=self.eps)


class _LayerNorm(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return _in_compute_dtype(super().forward(x))


class _RMSNorm(nn.RMSNorm):
    def forward(self, x: Tensor) -> Tensor:
        return _in_compute_dtype(super().forward(x))


def _in_compute_dtype(x: Tensor) -> Tensor:
    """Cast as autocast would for each layer that reads the norm, so that they share one copy; float64 is unchanged."""
    kind = device_kind(x)
    casts = torch.is_autocast_enabled(kind) and x.dtype == torch.float32
    return x.to(torch.get_autocast_dtype(kind)) if casts else x
