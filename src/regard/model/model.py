"""The model: embed, encode, decode, and the head. Everything it does it reads off its spec."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.errors import SpecError
from regard.model.spec import ModelSpec
from regard.nn.body import Body
from regard.nn.context import Context, Memory, Tape
from regard.nn.coords import Coords
from regard.nn.embed import Embedding
from regard.nn.head import Head
from regard.nn.mixer import Site
from regard.nn.state import State


class Net(nn.Module):
    """A model of any shape: `encode` gives a memory, `decode` runs the stream, `logits` reads it out."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.spec = spec
        site = Site("", spec.width, spec.length)
        self.embed: Embedding = spec.embed.build(site.at("embed", role="embed"))
        self.source: Embedding | None = spec.source.build(site.at("source", role="embed")) if spec.source else None
        self.encoder: Body | None = spec.encoder.build(site.at("encoder", role="stack")) if spec.encoder else None
        self.decoder: Body | None = spec.decoder.build(site.at("decoder", role="stack")) if spec.decoder else None
        self.head: Head = spec.head.build(site.at("head", role="head"), spec.embed.vocab)

    def encode(self, ids: Tensor, at: Coords, tape: Tape | None = None) -> Memory:
        """Run the encoder over ids (b, n)."""
        if self.encoder is None:
            raise SpecError("this model has no encoder")
        embed = self.embed if self.source is None else self.source
        x, _ = self.encoder(embed(ids, at), Context(at, tape=tape or Tape()))
        return Memory(x, x, at)

    def decode(
        self,
        ids: Tensor,
        at: Coords,
        memory: Memory | None = None,
        state: State | None = None,
        tape: Tape | None = None,
    ) -> tuple[Tensor, State | None]:
        """Run the decoder over ids (b, n), which follow what `state` remembers; gives the stream, not yet the logits."""
        if self.decoder is None:
            raise SpecError("this model has no decoder")
        stream, state = self.decoder(self.embed(ids, at), Context(at, memory=memory, tape=tape or Tape()), state)
        return stream, state

    def forward(
        self, ids: Tensor, at: Coords, source: tuple[Tensor, Coords] | None = None, tape: Tape | None = None
    ) -> Tensor:
        """The stream (b, n, d) of a whole pass: encoder-only, decoder-only, or both when a source is given."""
        if self.decoder is None:
            return self.encode(ids, at, tape).keys
        memory = self.encode(*source, tape) if source is not None else None
        return self.decode(ids, at, memory, tape=tape)[0]

    def logits(self, stream: Tensor) -> Tensor:
        return self.head(stream, self.embed.weight)  # type: ignore[no-any-return]

    def loss(self, stream: Tensor, target: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """Summed label-smoothed loss against target (b, n), and its plain negative log-likelihood."""
        return self.head.loss(stream, self.embed.weight, target, smoothing)  # type: ignore[no-any-return, operator]

    def start(self, rows: int, capacity: int) -> State:
        """A decoder state that remembers nothing, for `rows` hypotheses with room for `capacity` tokens."""
        if self.decoder is None:
            raise SpecError("this model has no decoder")
        return self.decoder.start(rows, capacity)

    @property
    def device(self) -> torch.device:
        return self.embed.weight.device
