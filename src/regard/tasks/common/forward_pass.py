"""One example as a model reads it, ready to run.

`model.attention` and everything in `interpret/` start from it: what goes in, how its tokens are labeled, and what the
model should predict at each position, so that a prediction can be explained.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from regard.data.batch import IGNORE
from regard.errors import SpecError
from regard.model.net import Net, PassSize
from regard.nn.core.context import Tape
from regard.nn.core.coords import Coords
from regard.nn.core.state import State
from regard.text import Tokenizer

Weights = tuple[dict[str, Tensor], list[str], list[str]]
"""Attention weights (h, n, m) by module path, with the tokens that are read and written."""


@dataclasses.dataclass(frozen=True)
class ForwardPass:
    """The input of one forward pass, with labels.

    ids, at, tokens                      what the stack with the head reads: ids (1, n), or pixels; labels of its tokens
    source, source_at, source_tokens     what the encoder of an encoder-decoder reads
    blank, source_blank                  tokens that say nothing (padding), which explanations put in the place of others
    before, before_tokens                ids of earlier segments, which a model with a memory has read, and their labels
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
    blank: int = 0
    source_blank: int = 0
    before: Sequence[Tensor] = ()
    before_tokens: Sequence[str] = ()

    @classmethod
    def of(
        cls,
        net: Net,
        ids: Sequence[int],
        wanted: Sequence[int],
        *,
        tokenizer: Tokenizer | None = None,
        at: Coords | None = None,
    ) -> ForwardPass:
        """A pass over one text."""
        at = Coords.span(len(ids), device=net.device) if at is None else at
        read, target = (torch.tensor([row], device=net.device) for row in (ids, wanted))
        if tokenizer is None:
            return cls(read, at, [str(i) for i in ids], target)
        return cls(read, at, tokenizer.tokens(ids), target, blank=tokenizer.pad)

    def after(self, source: Sequence[int], tokenizer: Tokenizer | None = None) -> ForwardPass:
        """Return the pass after a source that an encoder reads."""
        device = self.ids.device
        ids, at = torch.tensor([source], device=device), Coords.span(len(source), device=device)
        labels = [str(i) for i in source] if tokenizer is None else tokenizer.tokens(source)
        blank = 0 if tokenizer is None else tokenizer.pad
        return dataclasses.replace(self, source=ids, source_at=at, source_tokens=labels, source_blank=blank)

    def after_segments(self, segments: Sequence[Sequence[int]], tokenizer: Tokenizer) -> ForwardPass:
        """Return the pass after earlier segments of the text, which are in the memory of the model."""
        first, device = sum(map(len, segments)), self.ids.device
        return dataclasses.replace(
            self,
            at=Coords.span(self.at.n, first=first, device=device),
            before=[torch.tensor([ids], device=device) for ids in segments],
            before_tokens=[label for ids in segments for label in tokenizer.tokens(ids)],
        )

    @torch.no_grad()
    def read_before(self, net: Net, rows: int = 1) -> State:
        """The state of the decoder after the earlier segments."""
        state: State | None = net.start(rows, sum(ids.shape[1] for ids in self.before) + self.at.n)
        first = 0
        for ids in self.before:
            at = Coords.span(ids.shape[1], first=first, device=net.device)
            _, state = net.decode(ids.expand(rows, -1), at, state=state, tape=Tape())
            first += ids.shape[1]
        assert state is not None
        return state

    def empty(self) -> ForwardPass:
        """Return the same positions with tokens that say nothing, or black pixels."""
        ids = torch.full_like(self.ids, 0 if self.ids.is_floating_point() else self.blank)
        source = None if self.source is None else torch.full_like(self.source, self.source_blank)
        return dataclasses.replace(self, ids=ids, source=source)

    def repeat(self, rows: int) -> ForwardPass:
        """Return the pass in several rows, each of which may be changed by a tape."""
        ids, wanted = self.ids.expand(rows, *self.ids.shape[1:]), self.wanted.expand(rows, -1)
        source = None if self.source is None else self.source.expand(rows, -1)
        return dataclasses.replace(self, ids=ids, wanted=wanted, source=source)

    def run(self, net: Net, tape: Tape | None = None) -> Tensor:
        """The stream (1, n, d)."""
        if self.before:
            return net.decode(self.ids, self.at, state=self.read_before(net, self.ids.shape[0]), tape=tape)[0]
        pair = None if self.source is None or self.source_at is None else (self.source, self.source_at)
        return net(self.ids, self.at, pair, tape)  # type: ignore[no-any-return]

    def list_sizes(self, net: Net) -> list[PassSize]:
        """The sizes of the passes that a look inside computes."""
        rows, n, m = self.ids.shape[0], self.at.n, 0 if self.source_at is None else self.source_at.n
        encoder = [PassSize("encoder", rows, m, 0, 0, lambda place: True)] if m else []
        before = sum(ids.shape[1] for ids in self.before)
        side = "encoder" if net.decoder is None else "decoder"
        return [*encoder, PassSize(side, rows, n, before, m, lambda place: True)]

    def log_probs(self, net: Net, tape: Tape | None = None) -> Tensor:
        """log P of everything that is wanted (rows, k), in order of positions."""
        return self.choose(self.logits(net, tape))

    def logits(self, net: Net, tape: Tape | None = None) -> Tensor:
        """Scores (rows, k, v) where something is wanted."""
        return self.at_wanted(net.logits(self.run(net, tape), self.at))

    def at_wanted(self, logits: Tensor) -> Tensor:
        """Select the logits (rows, n, v), or (rows, v) of classes, where something is wanted: (rows, k, v)."""
        if not self.places:
            raise SpecError("there is no prediction to explain here; give the output that the model should predict")
        return (logits.unsqueeze(1) if logits.dim() == 2 else logits)[:, self.places]

    def choose(self, logits: Tensor) -> Tensor:
        """log P of what is wanted (rows, k), from logits (rows, k, v)."""
        return logits.log_softmax(-1).gather(2, self.wanted[:, self.places, None]).squeeze(2)

    @cached_property
    def places(self) -> list[int]:
        """The positions where something is wanted."""
        return (self.wanted[0] != IGNORE).nonzero().squeeze(1).tolist()

    @torch.no_grad()
    def attention(self, net: Net) -> Weights:
        """Attention weights of all layers, with the tokens on both sides."""
        tape = Tape("*.weights")
        self.run(net, tape)
        weights = {name.removesuffix(".weights"): w[0].cpu() for name, w in tape.kept.items()}
        return weights, list(self.source_tokens or self.tokens), list(self.tokens)
