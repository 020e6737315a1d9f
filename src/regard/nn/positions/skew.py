"""Skewing: from scores by distance to scores by key.

A product of n queries with a vector for each distance gives scores by distance, (n, r). Where positions count up without gaps,
row i needs them shifted left by n − 1 − i, which a reshape does (Dai et al. 2019; Huang et al. 2018, §3.4): no index, and no
(n, m, d) buffer of vectors for all pairs.

    by distance, key − query         as one line, without         by key, three keys
    −2  −1   0   1                   its first n − 1 = 2          (· is hidden by a causal mask)
     a   b   c   d                   c d e f g h i j k l          c  ·  ·
     e   f   g   h            ─▶                           ─▶     f  g  ·
     i   j   k   l                                                i  j  k
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from regard.nn.core.coords import Coords


@dataclass(frozen=True)
class DistanceSpan:
    """The distances, key minus query, of n queries and m keys: from `first` to `last`, which may be cut."""

    first: int
    last: int
    keys: int

    @classmethod
    def of(cls, q: Coords, k: Coords, *, causal: bool) -> DistanceSpan | None:
        """The span of positions that count up; None of others. A causal rule hides keys after the query: their distances,
        all but as many as the shift needs, are left out."""
        if q.first is None or k.first is None:
            return None
        first, last = k.first - q.first - q.n + 1, k.first - q.first + k.n - 1
        return cls(first, max(0, first + k.n) if causal and last > 0 else last, k.n)

    def rows(self, reach: int) -> slice | None:
        """The rows of a table of the distances −reach … reach; None if some are further."""
        return slice(self.first + reach, self.last + reach + 1) if -reach <= self.first and self.last <= reach else None


def relative_shift(x: Tensor, m: int) -> Tensor:
    """Shift row i of x (…, n, r) left by n − 1 − i and keep m columns.

    Where r < n + m − 1 the last columns of a row come from the next one; a causal rule hides just those.
    """
    n, r = x.shape[-2:]
    if n == 1:
        return x[..., :m]
    long = x.flatten(-2)[..., n - 1 : n - 1 + n * (r - 1)]
    return long.view(*long.shape[:-1], n, r - 1)[..., :m]


def relative_unshift(x: Tensor, r: int) -> Tensor:
    """The adjoint of `relative_shift`: row i of x (…, n, m) at n − 1 − i in a row of r zeros."""
    n, m = x.shape[-2:]
    if n == 1:
        return F.pad(x, (0, r - m))
    long = F.pad(x, (0, r - 1 - m)).flatten(-2)
    return F.pad(long, (n - 1, 1)).view(*x.shape[:-2], n, r)
