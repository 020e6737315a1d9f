"""Mixing corpora: the share of each corpus in an epoch.

Raffel et al. 2019, section 3.5.2:

    proportional    the number of pairs               a large corpus drowns a small one
    limit           at most so many pairs count       T5's choice: limits the largest corpora
    temperature     the 1/T-th power of the above     from proportional (T = 1) towards equal shares
"""

from __future__ import annotations

from collections.abc import Sequence


def mixture_shares(
    sizes: Sequence[int], weights: Sequence[float], *, limit: int | None = None, temperature: float = 1.0
) -> tuple[float, ...]:
    """Return the shares of corpora of these sizes, each multiplied by its weight at the end."""
    counted = (size if limit is None else min(size, limit) for size in sizes)
    return tuple(weight * count ** (1 / temperature) for weight, count in zip(weights, counted, strict=True))
