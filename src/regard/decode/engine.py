"""The contract of an engine: what runs a model to decode.

torch is one, the native library another, CTranslate2 a third (`regard.engine`). A model that was loaded with an engine carries
it (`attach_engine`), and `generate` hands it what it can do; the rest runs on torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

from regard.decode.decode_request import Constraints, Draw, Hypothesis, SpecialTokens, check_streams
from regard.decode.search import Search

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from regard.model.net import Net


@dataclasses.dataclass(frozen=True)
class SequenceProgress:
    """What a step did for one sequence of a `ContinuousBatch`."""

    sequence: int
    """The number that `add` returned."""
    token: int | None
    """The token that it wrote; None for the end mark, and for beam search, which may still change its first token."""
    hypotheses: list[Hypothesis] | None = None
    """Once it is over: what `decode` would have returned for it."""


class ContinuousBatch(Protocol):
    """Sequences that are decoded together, one step at a time; they join and leave between steps.

        batch = engine.open_batch()
        first = batch.add([5, 9, 2], Search(beam=1), special)
        while len(batch):
            for progress in batch.step():
                ...                                 # progress.token as it is written, progress.hypotheses at the end

    A sequence gives what `engine.decode([source], …)[0]` gives, whatever else is in the batch: each has its own search,
    constraints and random numbers. `add` and `remove` return at once and may be called from any thread, also during a step;
    one thread at a time takes steps. A step reads a limited part of long prompts, so that the others are not held up; a new
    sequence may make no progress at first. Close a batch when it is no longer used.
    """

    def add(
        self,
        source: Sequence[int],
        search: Search,
        special: SpecialTokens,
        *,
        constraints: Constraints = ...,
        draw: Draw = ...,
    ) -> int:
        """Let a sequence join with the next step; its number. Arguments as those of `decode` for this source alone.

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
        """`native`, `ctranslate2` or `torch`."""

    @property
    def length(self) -> int:
        """The length that the model was built for."""

    @property
    def room(self) -> int | None:
        """Maximum number of tokens on either side; None if there is no limit."""

    def is_current(self) -> bool:
        """Whether it still has the weights of the model that it was made from."""

    def find_refusal(self, search: Search, constraints: Constraints) -> str | None:
        """Why it cannot decode like this; None if it can."""

    def encode(self, source: Sequence[int]) -> NDArray[np.float32]:
        """The encoder's output for a source, (n, d)."""

    def decode(
        self,
        sources: Sequence[Sequence[int]],
        search: Search,
        special: SpecialTokens,
        *,
        constraints: Constraints = ...,
        draw: Draw = ...,
    ) -> list[list[Hypothesis]]:
        """The `n_best` hypotheses of each source, as `generate` returns them."""

    def open_batch(self) -> ContinuousBatch:
        """A batch that sequences join and leave while it runs. An engine has any number of them."""

    def score(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], special: SpecialTokens
    ) -> list[list[float]]:
        """The log-probability of each token of each target; targets include their end mark."""


_ENGINES: WeakKeyDictionary[Net, Engine] = WeakKeyDictionary()


def attach_engine(net: Net, engine: Engine) -> None:
    """Let an engine decode in the place of a net, as long as the net's weights stay as they are."""
    _ENGINES[net] = engine


def detach_engine(net: Net) -> None:
    """Let a net decode by itself again."""
    _ENGINES.pop(net, None)


def find_engine(nets: Sequence[Net]) -> Engine | None:
    """The engine that decodes in the place of these nets; None if they run on torch."""
    engine = _ENGINES.get(nets[0]) if len(nets) == 1 else None
    return engine if engine is not None and engine.is_current() else None


def find_willing_engine(nets: Sequence[Net], search: Search, constraints: Constraints) -> Engine | None:
    """The engine that decodes a request in the place of these nets; None if it is decoded by torch."""
    engine = find_engine(nets)
    return engine if engine is not None and engine.find_refusal(search, constraints) is None else None


def stream_hypothesis(
    engine: Engine,
    source: Sequence[int],
    search: Search,
    special: SpecialTokens,
    *,
    constraints: Constraints = Constraints(),
    draw: Draw = Draw(),
) -> Iterator[int]:
    """The tokens of one output as an engine writes them, without the end mark; greedy search and sampling only."""
    check_streams(search, constraints)
    batch, count = engine.open_batch(), 0
    try:
        batch.add(source, search, special, constraints=constraints, draw=draw)
        while len(batch):
            for progress in batch.step():
                if progress.token is not None:
                    count += 1
                    yield progress.token
                if progress.hypotheses is not None:  # an engine that decodes everything in one step says it all now
                    yield from progress.hypotheses[0].tokens[count:]
    finally:
        batch.close()
