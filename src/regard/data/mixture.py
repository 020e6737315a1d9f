"""How much of an epoch each of several corpora fills (Raffel et al. 2019, section 3.5.2).

in proportion        as many pairs as it has                a large corpus drowns a small one
with a limit         at most so many count                  T5's own way: the largest are held back
with a temperature   the 1/T-th power of that               from 1, in proportion, towards equal shares
"""

from __future__ import annotations

from collections.abc import Sequence


def mixture_shares(
    sizes: Sequence[int], weights: Sequence[float], *, limit: int | None = None, temperature: float = 1.0
) -> tuple[float, ...]:
    """The shares of corpora of these sizes, each multiplied by its weight in the end."""
    counted = (size if limit is None else min(size, limit) for size in sizes)
    return tuple(weight * count ** (1 / temperature) for weight, count in zip(weights, counted, strict=True))
