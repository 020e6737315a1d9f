"""Attention of a recurrent decoder to its source.

Bahdanau et al. 2014 (additive), Luong et al. 2015 (dot, general, concat). One head; s is the decoder's state, h_j the memory:

    additive, concat    v · tanh(W s + U h_j)        W and U are the two halves of Luong's W_a
    general             s · W h_j
    dot                 s · h_j
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from regard.errors import SpecError
from regard.nn.attention.attend import fold, masked_softmax, unfold
from regard.nn.core.context import Memory

Score = Literal["additive", "dot", "general", "concat"]


class SourceAttention(nn.Module):
    """Weights of a memory for the states of a decoder, and its weighted mean."""

    def __init__(self, score: Score, width: int, memory: int) -> None:
        super().__init__()
        if score == "dot" and width != memory:
            raise SpecError(
                f"attention 'dot' needs states as wide as the memory ({memory}), got {width}; use 'general'"
            )
        self.score, self.width = score, width
        tanh = score in ("additive", "concat")
        self.query = nn.Linear(width, width) if tanh else None
        self.key = nn.Linear(memory, width, bias=False) if score != "dot" else None
        self.v = nn.Linear(width, 1, bias=False) if tanh else None

    def project(self, memory: Memory) -> Tensor:
        """Return the keys (s, m, d), once per sentence."""
        return memory.keys if self.key is None else self.key(memory.keys)

    def forward(self, states: Tensor, keys: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Return the mean of the memory (b, n, e) for states (b, n, d), and the weights (b, 1, n, m)."""
        q = fold(states.unsqueeze(1), keys.shape[0]).squeeze(1)  # hypotheses of a sentence share its keys
        if self.query is None or self.v is None:
            scores = q @ keys.mT
        else:
            scores = self.v((self.query(q).unsqueeze(2) + keys.unsqueeze(1)).tanh()).squeeze(-1)
        keep = memory.at.kept.unsqueeze(1) if memory.at.padded else None
        weights = masked_softmax(scores, keep)
        if keep is not None and not memory.at.contiguous:  # a row may be empty
            weights = weights * keep.any(-1, keepdim=True)
        context, rows = weights @ memory.values.to(weights.dtype), states.shape[0]
        return unfold(context.unsqueeze(1), rows).squeeze(1), unfold(weights.unsqueeze(1), rows)

    def flops(self, m: int) -> float:
        """FLOPs per state, for a memory of `m`; keys are made once per sentence."""
        maps = sum(2.0 * part.weight.numel() for part in (self.query,) if part is not None)
        return maps + 2.0 * m * (2 * self.width if self.v is not None else self.width)
