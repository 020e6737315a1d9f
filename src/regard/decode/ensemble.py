"""One or more models decoding together, step by step.

Tokens go in, log-probabilities of the next tokens come out. Search does not handle states: it asks for the next step and says
which hypotheses go on.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from regard.decode.fast_step import FastDecoder, build_fast_decoder
from regard.errors import SpecError
from regard.machine import free_memory
from regard.model.cost import cost
from regard.model.net import Net
from regard.nn.blocks.body import Layers
from regard.nn.blocks.embedding import EmbedSpec
from regard.nn.core.context import Memory
from regard.nn.core.coords import Coords
from regard.nn.core.state import State

Source = tuple[Tensor, Coords]
LARGE = 1 << 20
"""Tokens of all hypotheses above which the memory of their states is computed first."""
NUMBER = 4
"""Bytes of a float32."""


@dataclasses.dataclass
class _Member:
    net: Net
    memory: Memory | None
    state: State
    fast: tuple[FastDecoder, Tensor] | None
    """Fast single-token steps, and the buffer for their log-probabilities."""


def check_state_memory(nets: Sequence[Net], rows: int, capacity: int) -> None:
    """Raise a MemoryError if the states of this many hypotheses and tokens do not fit, before they are allocated."""
    if rows * capacity < LARGE or not (free := free_memory()):
        return
    numbers = sum(cost(net, capacity).state for net in nets)
    if (needed := numbers * NUMBER * rows * capacity) > free:
        raise MemoryError(f"{rows:,} hypotheses of {capacity:,} tokens take {needed:,.0f} bytes; {free:,} are free")


class Ensemble:
    """Models (usually one) with their decoding state. Several models average their probabilities."""

    def __init__(self, nets: Sequence[Net], source: Source | None, *, rows: int, beam: int = 1, capacity: int) -> None:
        sides = {"target": [net.spec.embed for net in nets], "source": [_source_embedding(net) for net in nets]}
        for side, embeddings in sides.items():
            sizes = {embed.vocab for embed in embeddings}
            if len(sizes) > 1:
                raise SpecError(
                    f"models of an ensemble must share a {side} vocabulary; these have {sorted(sizes)} tokens"
                )
        self._at, self._rows = Coords.span(0), rows * beam
        self._members = []
        check_state_memory(nets, rows * beam, capacity)
        for net in nets:
            fast, memory = build_fast_decoder(net), None if source is None else net.encode(*source)
            state = net.start(rows * beam, capacity)
            self._members.append(
                _Member(net, memory, state, None if fast is None else (fast, fast.allocate(rows * beam)))
            )

    def advance(self, tokens: Tensor, at: Coords | None = None) -> Tensor:
        """Read the next tokens (rows, n) and return log-probabilities (rows, v) of what follows.

        The caller may change the returned tensor.
        """
        self._at = at = at or self._next_coords(tokens)
        each = [self._log_probs(member, tokens, at) for member in self._members]
        if len(each) == 1:
            return each[0]
        return torch.stack(each).logsumexp(0) - math.log(len(each))

    def _next_coords(self, tokens: Tensor) -> Coords:
        """Coordinates of tokens that come right after the last ones read."""
        read = self._at
        if read.first is not None and not read.padded:
            return Coords.span(tokens.shape[1], first=read.first + read.n, device=tokens.device)
        return Coords(read.pos.amax(1, keepdim=True) + torch.arange(1, tokens.shape[1] + 1, device=tokens.device))

    def _log_probs(self, member: _Member, tokens: Tensor, at: Coords) -> Tensor:
        single = tokens.shape[1] == 1 and not at.padded  # one token in every row, no padding
        if (
            member.fast is not None
            and single
            and _is_contiguous(member.memory)
            and not _is_recorded(tokens.device.type)
        ):
            fast, buffer = member.fast
            assert isinstance(member.state, Layers)
            return fast.log_probs(fast.step(tokens, at, member.memory, member.state), buffer)
        stream, state = member.net.decode(tokens, at, member.memory, member.state)
        assert state is not None
        member.state = state
        return compute_log_probs(member.net, _last_kept(stream, at))

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> None:
        """Continue with hypotheses `rows`; `sentences` names those that stay when some leave."""
        self._at, self._rows = self._at.select(rows), rows.shape[0]
        for member in self._members:
            member.state = member.state.select(rows, sentences)
            if sentences is not None and member.memory is not None:
                member.memory = member.memory.select(sentences)

    def join(self, other: Ensemble) -> None:
        """Append the sentences of another ensemble of the same models, which has read other numbers of tokens."""
        self._at = self._last_coords().join(other._last_coords(), self._rows, other._rows)
        self._rows += other._rows
        for member, entering in zip(self._members, other._members, strict=True):
            member.state = member.state.join(entering.state)
            if member.memory is not None and entering.memory is not None:
                member.memory = member.memory.join(entering.memory)
            if member.fast is not None:
                fast, buffer = member.fast
                member.fast = fast, buffer if fast.fits(buffer, self._rows) else fast.allocate(2 * self._rows)

    def _last_coords(self) -> Coords:
        """The coordinates of the last token of each row."""
        read = self._at
        if read.n == 1:
            return read
        return read.last(1) if not read.padded else Coords(read.pos.amax(1, keepdim=True))


def compute_log_probs(net: Net, stream: Tensor) -> Tensor:
    """Log-probabilities of the next tokens, in float32 or wider."""
    logits = net.logits(stream)
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)


def _is_contiguous(memory: Memory | None) -> bool:
    """True if every row of the memory has something to attend to."""
    return memory is None or memory.at.contiguous


def _is_recorded(device: str) -> bool:
    """True if operators are recorded for autograd, or run under autocast."""
    return torch.is_grad_enabled() or torch.is_autocast_enabled(device)


def _source_embedding(net: Net) -> EmbedSpec:
    return net.spec.source or net.spec.embed


def _last_kept(stream: Tensor, at: Coords) -> Tensor:
    """The stream at the last token of each row that is not padding."""
    if not at.padded:
        return stream[:, -1]
    column = torch.arange(at.n, device=stream.device)
    last = torch.where(at.kept, column, -1).amax(1)
    return stream[torch.arange(stream.shape[0], device=stream.device), last]
