"""The largest few of many: a vocabulary is long and a beam is short.

On a CPU torch walks every element with an index beside it. Finding the largest of each block of elements is many times
quicker, and the k largest elements lie in the k blocks with the largest maxima, so only those are looked into:

    3 1 2 | 9 4 8 | 5 7 6        maxima 3 9 7   ─▶   k = 2: blocks 9 4 8 and 5 7 6   ─▶   9 8
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 64
SMALL = 1 << 13
"""Below so many elements torch's own way is as quick."""


def top(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row of x (rows, v), largest first, and where they stand; the same as `x.topk(k)`."""
    blocks = x.shape[1] // BLOCK
    if x.device.type != "cpu" or x.numel() < SMALL or blocks < 4 * k:
        return x.topk(k)
    whole = x[:, : blocks * BLOCK].view(-1, blocks, BLOCK)
    chosen = whole.amax(2).topk(k).indices
    inside = whole.gather(1, chosen.unsqueeze(2).expand(-1, -1, BLOCK)).flatten(1)
    values, found = torch.cat([inside, x[:, blocks * BLOCK :]], 1).topk(k)  # the last elements fill no block
    block = chosen.gather(1, (found // BLOCK).clamp(max=k - 1))
    return values, torch.where(found < k * BLOCK, block * BLOCK + found % BLOCK, found + (blocks - k) * BLOCK)
