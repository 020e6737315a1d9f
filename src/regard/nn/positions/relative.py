"""Relative positions of Transformer-XL.

The four terms of a score (Dai et al. 2019, §3.3):

    score_ij = q_i·k_j  +  q_i·W_R R_{i−j}  +  u·k_j  +  v·W_R R_{i−j}        all of it divided by √e
                 (a)            (b)             (c)           (d)

R is a fixed sinusoid of the distance; u and v belong to the place where the position is set (a stack: one pair for all layers)
and W_R to each layer. (b) and (d) are one product with the codes of all distances; in rows without gaps each pair then finds
its code by the relative shift, otherwise by index.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.nn.attention.attend import grouped_matmul
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import Act, Site
from regard.nn.core.shape import split_heads
from regard.nn.positions.position import POSITIONS, Position, PositionSpec, distance, sinusoid
from regard.nn.positions.skew import relative_shift
from regard.spec import Count, spec

DistanceCodes = tuple[Tensor, Tensor | None]
"""Codes of distances from far to near, and the index of each pair's code (b | 1, n, m); None if a shift gives it."""


@POSITIONS.add(also=("transformer_xl", "xl"))
@spec
class Distance(PositionSpec):
    """The distance of a key enters its score (Transformer-XL); distances beyond `clamp` are treated alike."""

    clamp: Count | None = None
    acts = frozenset[Act]({"content"})
    projects = True

    def build(self, site: Site) -> Position:
        return DistancePosition(self, site)


class DistancePosition(Position):
    acts = Distance.acts

    def __init__(self, spec: Distance, site: Site) -> None:
        super().__init__()
        self.clamp, self.width, self.causal = spec.clamp, site.width, site.causal
        self.u = nn.Parameter(torch.empty(site.heads, site.head_width))
        self.v = nn.Parameter(torch.empty(site.heads, site.head_width))

    def prepare(self, q: Coords, k: Coords) -> DistanceCodes:
        """Prepare the codes, which depend on coordinates alone, for all layers."""
        if q.first is not None and k.first is not None:
            high, low = q.first + q.n - 1 - k.first, q.first - k.first - k.n + 1
            if self.causal and low < 0:  # keys after a query are hidden; the shift needs one more column than keys
                low = min(0, high - k.n)
            return self._codes(low, high, q.pos.device), None
        far = -distance(q, k)
        low, high = self._reach(far[q.kept.unsqueeze(2) & k.kept.unsqueeze(1)])
        return self._codes(low, high, far.device), high - far.clamp(low, high)

    def project(self, p: DistanceCodes, layer: Callable[[Tensor], Tensor]) -> DistanceCodes:
        codes, index = p
        return split_heads(layer(codes).unsqueeze(0), self.u.shape[0]), index

    def score(self, q: Tensor, k: Tensor, p: DistanceCodes) -> Tensor:
        """Compute the terms (b), (c) and (d), (b, h, n, m)."""
        codes, index = p
        by_key = grouped_matmul(self.u.unsqueeze(1).expand(k.shape[0], -1, -1, -1), k.mT)
        by_distance = (q + self.v.unsqueeze(1)) @ codes.mT
        if index is None:
            return by_key + relative_shift(by_distance, k.shape[2])
        return by_key + by_distance.gather(-1, index.unsqueeze(1).expand(*by_distance.shape[:3], -1))

    def _codes(self, low: int, high: int, device: torch.device) -> Tensor:
        far = torch.arange(high, low - 1, -1, device=device)
        far = far if self.clamp is None else far.clamp(-self.clamp, self.clamp)
        return sinusoid(far, self.width, "halves", self.u.dtype)

    def _reach(self, far: Tensor) -> tuple[int, int]:
        """Return the smallest and largest distance that needs a code, from the actual pairs."""
        low, high = (0, 0) if far.numel() == 0 else (int(end) for end in far.aminmax())
        if self.clamp is not None:
            low, high = (min(max(end, -self.clamp), self.clamp) for end in (low, high))
        return (max(low, 0), max(high, 0)) if self.causal else (low, high)
