"""Normalisations of the stream: layer (Ba et al. 2016) and root-mean-square (Zhang & Sennrich 2019)."""

from __future__ import annotations

from torch import nn

from regard.registry import Registry
from regard.spec import Spec, spec

NORMS: Registry[type[NormSpec]] = Registry("norm")


class NormSpec(Spec):
    """How a vector is brought to unit size."""

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
        return nn.LayerNorm(width, eps=self.eps, bias=self.bias)


@NORMS.add
@spec
class RMSNorm(NormSpec):
    """Unit root-mean-square, then a learned scale: no mean, no shift."""

    eps: float = 1e-6
    kind = "rms_norm"

    def build(self, width: int) -> nn.Module:
        return nn.RMSNorm(width, eps=self.eps)
