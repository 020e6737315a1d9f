"""The rank of each target among the candidates.

Among all items that the user has not had (full ranking), and among a few sampled ones (the published protocols).
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from torch import Tensor

from regard.metrics.ranking import SAMPLED, gain_of_ranks


@dataclasses.dataclass(frozen=True)
class Targets:
    """Items that are ranked for each row of a batch; tokens are items from 1, and 0 is none."""

    target: Tensor
    """The item to find (b,)."""
    candidates: Tensor
    """Sampled items that the user has not had (b, k)."""
    owned: tuple[Tensor, Tensor]
    """Rows and items of what the users have had, which is not ranked; empty if it may come again."""

    def to(self, device: torch.device | str) -> Targets:
        rows, items = self.owned
        return Targets(self.target.to(device), self.candidates.to(device), (rows.to(device), items.to(device)))


def count_ranks(scores: Tensor, targets: Targets) -> dict[str, Tensor]:
    """For each score of rankings the counts of each row (b, 2), from the scores of all tokens (b, items + 1)."""
    full, sampled = rank_targets(scores, targets)
    gains = gain_of_ranks(full.numpy()) | gain_of_ranks(sampled.numpy(), SAMPLED)
    return {name: torch.from_numpy(np.stack([gain, np.ones_like(gain)], 1)) for name, gain in gains.items()}


def rank_targets(scores: Tensor, targets: Targets) -> tuple[Tensor, Tensor]:
    """The number of candidates before each target, ties counted half: among all items, and among the sampled ones."""
    true = scores.gather(1, targets.target.unsqueeze(1))
    some = scores.gather(1, targets.candidates).masked_fill(targets.candidates == 0, -torch.inf)
    ranked = hide_items(scores, targets.owned).scatter(1, targets.target.unsqueeze(1), -torch.inf)
    full, sampled = ((among > true).sum(1) + (among == true).sum(1) / 2 for among in (ranked, some))
    return full.double().cpu(), sampled.double().cpu()


def hide_items(scores: Tensor, owned: tuple[Tensor, Tensor]) -> Tensor:
    """Scores without those of token 0 and of what the users have had."""
    out = scores.clone()
    out[:, 0] = -torch.inf
    out[owned] = -torch.inf
    return out
