"""One example as a model reads it, ready to run.

`model.attention` and everything in `look/` start from it: what goes in, how its tokens are labeled, and what the model should
predict at each position, so that a prediction can be explained.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from regard.data.batch import IGNORE
from regard.errors import SpecError
from regard.model.net import Net
from regard.nn.core.context import Tape
from regard.nn.core.coords import Coords

Weights = tuple[dict[str, Tensor], list[str], list[str]]
"""Attention weights (h, n, m) by module path, with the tokens that are read and written."""


@dataclasses.dataclass(frozen=True)
class ForwardPass:
    """The input of one forward pass, with labels.

    ids, at, tokens                      what the stack with the head reads: ids (1, n), or pixels; labels of its tokens
    source, source_at, source_tokens     what the encoder of an encoder-decoder reads
    wanted                               indices (1, n) of what each position should predict, or (1, 1) of the class;
                                         IGNORE where nothing is predicted
    """

    ids: Tensor
    at: Coords
    tokens: Sequence[str]
    wanted: Tensor
    source: Tensor | None = None
    source_at: Coords | None = None
    source_tokens: Sequence[str] = ()

    @classmethod
    def of(
        cls, net: Net, ids: Sequence[int], tokens: Sequence[str], wanted: Sequence[int], at: Coords | None = None
    ) -> ForwardPass:
        """A pass over one text."""
        at = Coords.span(len(ids), device=net.device) if at is None else at
        return cls(torch.tensor([ids], device=net.device), at, tokens, torch.tensor([wanted], device=net.device))

    def after(self, source: Sequence[int], tokens: Sequence[str]) -> ForwardPass:
        """The same after a source that an encoder reads."""
        device = self.ids.device
        ids, at = torch.tensor([source], device=device), Coords.span(len(source), device=device)
        return dataclasses.replace(self, source=ids, source_at=at, source_tokens=tokens)

    def run(self, net: Net, tape: Tape | None = None) -> Tensor:
        """The stream (1, n, d)."""
        pair = None if self.source is None or self.source_at is None else (self.source, self.source_at)
        return net(self.ids, self.at, pair, tape)  # type: ignore[no-any-return]

    def log_probs(self, net: Net, tape: Tape | None = None) -> Tensor:
        """log P of everything that is wanted (k,), in order of positions."""
        if not bool((self.wanted != IGNORE).any()):
            raise SpecError("there is no prediction to explain here; give the output that the model should predict")
        logits = net.logits(self.run(net, tape), self.at)
        logits = logits.unsqueeze(1) if logits.dim() == 2 else logits
        return logits[self.wanted != IGNORE].log_softmax(-1).gather(1, self.wanted[self.wanted != IGNORE, None])[:, 0]

    @torch.no_grad()
    def attention(self, net: Net) -> Weights:
        """Attention weights of all layers, with the tokens on both sides."""
        tape = Tape("*.weights")
        self.run(net, tape)
        weights = {name.removesuffix(".weights"): w[0].cpu() for name, w in tape.kept.items()}
        return weights, list(self.source_tokens or self.tokens), list(self.tokens)
