"""One or several models, stepped together: tokens in, log-probabilities of the next ones out.

Search knows nothing of states: it asks for the next step, and says which hypotheses go on.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from regard.errors import SpecError
from regard.model.model import Net
from regard.nn.context import Memory
from regard.nn.coords import Coords
from regard.nn.state import State

Source = tuple[Tensor, Coords]


@dataclasses.dataclass
class _Run:
    net: Net
    memory: Memory | None
    state: State


class Steps:
    """An ensemble (of one, usually) in the middle of writing. Several models average their probabilities."""

    def __init__(self, nets: Sequence[Net], source: Source | None, *, rows: int, beam: int = 1, capacity: int) -> None:
        vocabularies = {net.spec.embed.vocab for net in nets}
        if len(vocabularies) > 1:
            raise SpecError(f"models of an ensemble must share a vocabulary; these have {sorted(vocabularies)} tokens")
        self._at = Coords.span(0)
        self._runs = [
            _Run(net, None if source is None else net.encode(*source), net.start(rows * beam, capacity)) for net in nets
        ]

    def advance(self, tokens: Tensor, at: Coords | None = None) -> Tensor:
        """Read tokens (rows, n) that follow those read so far; log-probabilities (rows, v) of what comes next."""
        at = at or Coords.span(tokens.shape[1], first=self._read, device=tokens.device)
        self._at = at
        each = [self._log_probs(run, tokens, at) for run in self._runs]
        if len(each) == 1:
            return each[0]
        return torch.stack(each).logsumexp(0) - math.log(len(each))

    def _log_probs(self, run: _Run, tokens: Tensor, at: Coords) -> Tensor:
        stream, state = run.net.decode(tokens, at, run.memory, run.state)
        assert state is not None
        run.state = state
        last = _last_kept(stream, at)
        logits = run.net.logits(last)
        return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> None:
        """Go on with hypotheses `rows`; when sentences leave, `sentences` says which stay."""
        for run in self._runs:
            run.state = run.state.select(rows, sentences)
            if sentences is not None and run.memory is not None:
                memory = run.memory
                keys = memory.keys.index_select(0, sentences)
                values = keys if memory.values is memory.keys else memory.values.index_select(0, sentences)
                run.memory = Memory(keys, values, memory.at.select(sentences))

    @property
    def _read(self) -> int:
        """How many tokens have been read, where all rows read alike."""
        return 0 if self._at.first is None else self._at.first + self._at.n


def _last_kept(stream: Tensor, at: Coords) -> Tensor:
    """The stream at each row's last token that is there."""
    if not at.padded:
        return stream[:, -1]
    column = torch.arange(at.n, device=stream.device)
    last = torch.where(at.kept, column, -1).amax(1)
    return stream[torch.arange(stream.shape[0], device=stream.device), last]
