"""The contract of an engine: what runs a model to decode.

torch is one, the native library another (`regard.engine`); an engine may also pass requests on to others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from regard.decode.decode_request import Hypothesis, Request, SpecialTokens, check_streams
from regard.stopping import check_stops

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from regard.model.net import Net


@dataclasses.dataclass(frozen=True)
class SequenceProgress:
    """Progress of one sequence of a `ContinuousBatch` in one step."""

    sequence: int
    """The number that `add` returned."""
    token: int | None
    """The token that it wrote; None for the end mark, and for beam search, which may still change its first token."""
    hypotheses: list[Hypothesis] | None = None
    """Result that `decode` would have given, once it is over."""


class ContinuousBatch(Protocol):
    """Sequences that are decoded together, one step at a time; they join and leave between steps.

        batch = engine.open_batch()
        first = batch.add(Request([[5, 9, 2]], Search(beam=1), special))
        while len(batch):
            for progress in batch.step():
                ...                                 # progress.token as it is written, progress.hypotheses at the end

    A sequence gives what `engine.decode(request)[0]` gives, whatever else is in the batch: each has its own search,
    constraints and random numbers. `add` and `remove` return at once and may be called from any thread, also during a step;
    one thread at a time takes steps. A step reads a limited part of long prompts, so that the others are not held up; a new
    sequence may make no progress at first. Close a batch when it is no longer used.
    """

    def add(self, request: Request) -> int:
        """Let the one source of a request join with the next step; returns the sequence's number.

        Raises what `decode` raises for a request that cannot be met; the batch stays as it is.
        """

    def remove(self, sequence: int) -> bool:
        """Let a sequence leave before it is over; False if it is not in the batch."""

    def step(self) -> list[SequenceProgress]:
        """Write the next token of every sequence that is read. What is over has left the batch."""

    def __len__(self) -> int:
        """The number of sequences that are not over."""

    def close(self) -> None:
        """Give back its memory."""


class Engine(Protocol):
    """Runs one model: token ids in, hypotheses out.

    Another thread can end a call (`regard.stopping`), which then raises `CallStopped`; so does Ctrl-C in the main thread, as
    KeyboardInterrupt. The engine, and a batch whose step was ended, can be used again.
    """

    @property
    def name(self) -> str:
        """`native` or `torch`."""

    @property
    def length(self) -> int:
        """The length that the model was built for."""

    @property
    def room(self) -> int | None:
        """Maximum number of tokens on either side; None if there is no limit."""

    @property
    def nets(self) -> Sequence[Net]:
        """The torch modules of the model, of which several average their probabilities; SpecError if it has none."""

    def find_refusal(self, request: Request) -> str | None:
        """Return why it cannot decode like this; None if it can."""

    def encode(self, source: Sequence[int]) -> NDArray[np.float32]:
        """The encoder's output for a source, (n, d)."""

    def decode(self, request: Request) -> list[list[Hypothesis]]:
        """The `n_best` hypotheses of each source, best first, in the order of the sources."""

    def open_batch(self) -> ContinuousBatch:
        """A batch that sequences join and leave while it runs. An engine has any number of them."""

    def score(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], special: SpecialTokens
    ) -> list[list[float]]:
        """The log-probability of each token of each target; targets include their end mark."""


def stream_tokens(engine: Engine, request: Request) -> Iterator[int]:
    """The tokens of the one output of a request as an engine writes them, without the end mark: those that `decode` returns.

    Only greedy search and sampling can stream: a beam may still change its first token at the last step.
    """
    check_streams(request)
    batch, count = engine.open_batch(), 0
    try:
        batch.add(request)
        while len(batch):
            check_stops()
            for progress in batch.step():
                if progress.token is not None:
                    count += 1
                    yield progress.token
                if progress.hypotheses is not None:  # an engine that decodes everything in one step says it all now
                    yield from progress.hypotheses[0].tokens[count:]
    finally:
        batch.close()
