"""One or several models, stepped together: tokens in, log-probabilities of the next ones out.

Search knows nothing of states: it asks for the next step, and says which hypotheses go on.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from regard.decode.fast_step import Flat, flat
from regard.errors import SpecError
from regard.model.net import Net
from regard.nn.blocks.body import Layers
from regard.nn.blocks.embedding import EmbedSpec
from regard.nn.core.context import Memory
from regard.nn.core.coords import Coords
from regard.nn.core.state import State

Source = tuple[Tensor, Coords]


@dataclasses.dataclass
class _Run:
    net: Net
    memory: Memory | None
    state: State
    flat: tuple[Flat, Tensor] | None
    """The fast way to take a step of one token, and where it writes what comes out."""


class Steps:
    """An ensemble (of one, usually) in the middle of writing. Several models average their probabilities."""

    def __init__(self, nets: Sequence[Net], source: Source | None, *, rows: int, beam: int = 1, capacity: int) -> None:
        for side, of in (("target", [net.spec.embed for net in nets]), ("source", [_reads(net) for net in nets])):
            sizes = {embed.vocab for embed in of}
            if len(sizes) > 1:
                raise SpecError(
                    f"models of an ensemble must share a {side} vocabulary; these have {sorted(sizes)} tokens"
                )
        self._at = Coords.span(0)
        self._runs = []
        for net in nets:
            fast, memory = flat(net), None if source is None else net.encode(*source)
            state = net.start(rows * beam, capacity)
            self._runs.append(_Run(net, memory, state, None if fast is None else (fast, fast.room(rows * beam))))

    def advance(self, tokens: Tensor, at: Coords | None = None) -> Tensor:
        """Read tokens (rows, n) that follow those read so far; log-probabilities (rows, v) of what comes next.

        What is returned is the caller's to change.
        """
        self._at = at = at or self._after(tokens)
        each = [self._log_probs(run, tokens, at) for run in self._runs]
        if len(each) == 1:
            return each[0]
        return torch.stack(each).logsumexp(0) - math.log(len(each))

    def _after(self, tokens: Tensor) -> Coords:
        """Where tokens stand that come right after those last read."""
        read = self._at
        if read.first is not None and not read.padded:
            return Coords.span(tokens.shape[1], first=read.first + read.n, device=tokens.device)
        return Coords(read.pos.amax(1, keepdim=True) + torch.arange(1, tokens.shape[1] + 1, device=tokens.device))

    def _log_probs(self, run: _Run, tokens: Tensor, at: Coords) -> Tensor:
        alone = tokens.shape[1] == 1 and not at.padded  # one token that is there in every row
        if run.flat is not None and alone and _sees(run.memory) and not _recorded(tokens.device.type):
            fast, room = run.flat
            assert isinstance(run.state, Layers)
            return fast.log_probs(fast.step(tokens, at, run.memory, run.state), room)
        stream, state = run.net.decode(tokens, at, run.memory, run.state)
        assert state is not None
        run.state = state
        return log_probs(run.net, _last_kept(stream, at))

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> None:
        """Go on with hypotheses `rows`; when sentences leave, `sentences` says which stay."""
        self._at = self._at.select(rows)
        for run in self._runs:
            run.state = run.state.select(rows, sentences)
            if sentences is not None and run.memory is not None:
                run.memory = run.memory.select(sentences)


def log_probs(net: Net, stream: Tensor) -> Tensor:
    """Log-probabilities of the tokens that follow, in float32 at least."""
    logits = net.logits(stream)
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)


def _sees(memory: Memory | None) -> bool:
    """Whether there is something to see in every row of the memory."""
    return memory is None or memory.at.contiguous


def _recorded(device: str) -> bool:
    """Whether operators are recorded in a graph, or change the kind of number."""
    return torch.is_grad_enabled() or torch.is_autocast_enabled(device)


def _reads(net: Net) -> EmbedSpec:
    return net.spec.source or net.spec.embed


def _last_kept(stream: Tensor, at: Coords) -> Tensor:
    """The stream at each row's last token that is there."""
    if not at.padded:
        return stream[:, -1]
    column = torch.arange(at.n, device=stream.device)
    last = torch.where(at.kept, column, -1).amax(1)
    return stream[torch.arange(stream.shape[0], device=stream.device), last]
