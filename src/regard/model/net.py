"""The model: embedding, encoder, decoder and head."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from regard.errors import ShapeError, SpecError, UnknownName
from regard.model.model_spec import ModelSpec
from regard.model.replay import Replay
from regard.nn.blocks.body import Ability, Body, BodySpec
from regard.nn.blocks.embedding import Embedding
from regard.nn.blocks.head import Head
from regard.nn.core.context import Context, Memory, Tape
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import Site
from regard.nn.core.part import Part
from regard.nn.core.state import State


@dataclasses.dataclass
class HeadedState(State):
    """State of the decoder, and of a head that reads the source."""

    body: State
    head: State


@dataclasses.dataclass(frozen=True)
class PassSize:
    """Size of a pass that the encoder or decoder is about to compute: `rows` of `length` tokens."""

    side: str
    rows: int
    length: int
    before: int
    """Tokens that a state remembers."""
    source: int
    """Tokens of the memory that a decoder reads; 0 without one."""
    keeps: Callable[[str], bool]
    """Decision to record the tensor at a place."""


class Net(nn.Module):
    """A model of any shape: `encode` returns a memory, `decode` runs the stream, `logits` applies the head."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.spec = spec
        site = Site("", spec.width, spec.length)
        self.embed: Embedding = spec.embed.build(site.at("embed", role="embed"))
        self.source: Embedding | None = spec.source.build(site.at("source", role="embed")) if spec.source else None
        self.encoder: Body | None = spec.encoder.build(spec.encoder_site) if spec.encoder else None
        self.decoder: Body | None = spec.decoder.build(spec.decoder_site) if spec.decoder else None
        end = site.at(
            "head",
            role="head",
            width=spec.out_width,
            memory=spec.memory_width,
            embedded=spec.embed.leaves(spec.width),
        )
        self.head: Head = spec.head.build(end, spec.embed.vocab)
        aside = dataclasses.replace(end, path="beside")
        self.beside: Head | None = spec.beside.build(aside, spec.embed.vocab) if spec.beside else None
        self.tape: Tape | None = None
        """The tape of every pass that is not given one; see `watch`."""
        self.check_pass: Callable[[PassSize], None] | None = None
        """Called before each pass; it may refuse the pass with an error."""
        self._picky = {"encoder": _picky(spec.encoder), "decoder": _picky(spec.decoder)}

    def encode(self, ids: Tensor, at: Coords, tape: Tape | None = None) -> Memory:
        """Run the encoder over ids (b, n)."""
        if self.encoder is None:
            raise SpecError("this model has no encoder")
        embed = self.embed if self.source is None else self.source
        self._fits("encoder", at)
        tape = tape or self.tape or Tape()
        if self.check_pass is not None:
            self.check_pass(PassSize("encoder", len(ids), at.n, 0, 0, tape.wants))
        first = tape.at("encoder.embed", embed(ids, at, self.embed.table))
        memory = self.encoder.encode(first, Context(at, tape=tape))
        return dataclasses.replace(memory, ids=ids) if self.spec.head.reads_source else memory

    def decode(
        self,
        ids: Tensor,
        at: Coords,
        memory: Memory | None = None,
        state: State | None = None,
        tape: Tape | None = None,
    ) -> tuple[Tensor, State | None]:
        """Run the decoder over ids (b, n), which follow the tokens in `state`; returns the stream, not the logits.

        To the stream, a head that reads the source adds what it has found there.
        """
        if self.decoder is None:
            raise SpecError("this model has no decoder")
        if isinstance(state, Replay):
            n, state = ids.shape[1], state.add(ids, at)
            stream, _ = self.decode(state.ids, state.at, memory, tape=tape)
            return stream[:, state.at.n - n :], state
        self._fits("decoder", at, memory)
        tape = tape or self.tape or Tape()
        if self.check_pass is not None:
            source = 0 if memory is None else memory.at.n
            self.check_pass(PassSize("decoder", len(ids), at.n, at.first or 0, source, tape.wants))
        x = tape.at("decoder.embed", self.embed(ids, at))
        ctx = Context(at, memory=memory, tape=tape)
        if not self.spec.head.reads_source:
            return self.decoder(x, ctx, state)  # type: ignore[no-any-return]
        before = state if isinstance(state, HeadedState) else None
        stream, body = self.decoder(x, ctx, before and before.body)
        stream, head = self.head.read_source(stream, dataclasses.replace(ctx, first=x), before and before.head)
        return stream, None if body is None or head is None else HeadedState(body, head)

    def forward(
        self, ids: Tensor, at: Coords, source: tuple[Tensor, Coords] | None = None, tape: Tape | None = None
    ) -> Tensor:
        """Return the stream (b, n, d) of a whole pass: encoder-only, decoder-only, or both when a source is given."""
        if self.decoder is None:
            return self.encode(ids, at, tape).keys
        memory = self.encode(*source, tape) if source is not None else None
        return self.decode(ids, at, memory, tape=tape)[0]

    def logits(self, stream: Tensor, at: Coords | None = None) -> Tensor:
        """Apply the head to the stream; a head that pools needs the coordinates `at`."""
        return self.head(stream, self.embed.table, at)  # type: ignore[no-any-return]

    def score(self, stream: Tensor, ids: Tensor) -> Tensor:
        """Return the logits (…, k) of a few tokens (…, k) for each position of the stream (…, d), and of no others."""
        return self.head.score(stream, self.embed.table, ids)

    def logits_beside(self, stream: Tensor, at: Coords | None = None) -> Tensor:
        """Apply the second head to the stream."""
        if self.beside is None:
            raise SpecError("this model has only one head; set `beside` for a second one")
        return self.beside(stream, self.embed.table, at)  # type: ignore[no-any-return]

    def loss(self, stream: Tensor, target: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """Return the summed label-smoothed loss against target (b, n), and the plain negative log-likelihood."""
        return self.head.loss(stream, self.embed.table, target, smoothing)

    def start(self, rows: int, capacity: int) -> State:
        """Return an empty decoder state for `rows` hypotheses, with space for `capacity` tokens."""
        if self.decoder is None or self.spec.decoder is None:
            raise SpecError("this model has no decoder")
        if not self.spec.decoder.streams:
            return Replay.empty(rows, self.device)
        body = self.decoder.start(rows, capacity)
        return HeadedState(body, self.head.start()) if self.spec.head.reads_source else body

    def before_step(self, step: int) -> None:
        """Notify every part that training step `step` is about to begin."""
        for part in self.modules():
            if isinstance(part, Part):
                part.before_step(step)

    def _fits(self, side: str, at: Coords, memory: Memory | None = None) -> None:
        """Refuse inputs that a mixer cannot handle, without reading a tensor."""
        for part in self._picky[side]:
            name = f"{part.name} in the {side}"
            seen = memory.at if part.role == "cross" and memory is not None else at
            if seen.packed and not part.can.packed:
                raise ShapeError(f"{name} cannot keep packed documents apart; give it one document per row")
            end = seen.n + (seen.first or 0)
            if end > self.spec.length and part.can.length == "fixed":
                raise ShapeError(
                    f"{name} is built for {self.spec.length} tokens, got {end}; shorten them or raise the length"
                )

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of everything that belongs in a weights file: parameters, and buffers that cannot be recomputed."""
        return {name: tuple(t.shape) for name, t in self.state_dict().items()}

    @torch.no_grad()
    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Copy weights by name; weights that are not named stay."""
        own = self.state_dict()
        for name, tensor in weights.items():
            own[name].copy_(tensor)

    @contextmanager
    def use_weights(self, weights: Mapping[str, Tensor]) -> Iterator[None]:
        """Use other weights within a `with` block; weights that are not named stay."""
        own = {name: t.clone() for name, t in self.state_dict().items() if name in weights}
        self.load_weights(weights)
        try:
            yield
        finally:
            self.load_weights(own)

    @contextmanager
    def watch(self, tape: Tape) -> Iterator[Tape]:
        """Use a tape for every pass within a `with` block, decoding included. Tapes nest: an outer one comes first.

        A place to replace that no pass has is an error, and so is a block in which a tape with patterns recorded nothing.
        """
        before, tape.outer = self.tape, self.tape
        self.tape = tape
        try:
            yield tape
        finally:
            self.tape = before
        for pattern in tape.unused():
            raise UnknownName("place", pattern, list(tape.passed))
        if tape.patterns and not tape.kept:
            if tape.passed:
                raise UnknownName("place", tape.patterns[0], list(tape.passed))
            raise SpecError(
                "nothing was recorded: this net ran no pass within the block; run its model there, in this process"
            )

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device


def _picky(body: BodySpec | None) -> list[Ability]:
    """List the parts of a body that cannot handle every batch."""
    found = [] if body is None else body.abilities()
    return list(dict.fromkeys(part for part in found if part.can.length == "fixed" or not part.can.packed))
