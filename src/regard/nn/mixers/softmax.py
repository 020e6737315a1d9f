"""The settings that every softmax attention shares.

A mixer that computes softmax(q·kᵀ/√d_k)·v over some of the pairs inherits this spec, so all of them take the same settings
with the same defaults, and `dials()` hands them to a dense twin.
"""

from __future__ import annotations

import dataclasses
from dataclasses import KW_ONLY
from typing import Any, Literal

from regard.errors import SpecError
from regard.nn.core.mixer import MixerSpec
from regard.nn.core.shape import width_of_head
from regard.nn.layers.norm import NormSpec
from regard.nn.positions.position import PositionSpec
from regard.spec import Count, Heads, Share, spec


@spec
class SoftmaxAttention(MixerSpec):
    """Base spec of softmax attention; `heads` comes first, the other settings are keywords."""

    heads: Heads
    _: KW_ONLY
    kv_heads: Heads | None = None
    """Number of key and value heads (grouped queries); defaults to `heads`."""
    head_width: Count | None = None
    """d_k, the width of one head; defaults to width / heads."""
    scale: float | None = None
    """Factor that scores are multiplied by; defaults to 1/√d_k."""
    bias: bool | Literal["qkv"] = True
    """Bias on every projection, on none, or on all but the output (`qkv`, as in Qwen2)."""
    dropout: Share = 0.0
    """Dropout on the attention weights."""
    position: PositionSpec | None = None
    """A position code of this layer's own; otherwise the stack's is used."""
    qk_norm: NormSpec | None = None
    """A norm applied to queries and keys."""

    def __post_init__(self) -> None:
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise SpecError(f"kv_heads should divide heads={self.heads}, got {self.kv_heads}")

    def head_shape(self, width: int) -> tuple[int, int]:
        return self.heads, width_of_head(width, self.heads, self.head_width)

    def dials(self) -> dict[str, Any]:
        """Return the shared settings, `heads` included, as arguments for another softmax attention."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(SoftmaxAttention)}
