"""The contract of an engine: what runs a model to decode.

torch is one, the native library another, CTranslate2 a third (`regard.engine`). A model that was loaded with an engine carries
it (`attach_engine`), and `generate` hands it what it can do; the rest runs on torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from regard.decode.decode_request import Constraints, Draw, Hypothesis, SpecialTokens
from regard.decode.search import Search

if TYPE_CHECKING:
    from regard.model.net import Net


class Engine(Protocol):
    """Runs one model: token ids in, hypotheses out."""

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

    def score(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], special: SpecialTokens
    ) -> list[list[float]]:
        """The log-probability of each token of each target; targets include their end mark."""


@runtime_checkable
class StreamsTokens(Protocol):
    """An engine that gives tokens as they are generated."""

    def stream(
        self,
        source: Sequence[int],
        search: Search,
        special: SpecialTokens,
        *,
        constraints: Constraints = ...,
        draw: Draw = ...,
    ) -> Iterator[int]:
        """The tokens of one output without the end mark, as `stream_tokens` gives them."""


_ENGINES: WeakKeyDictionary[Net, Engine] = WeakKeyDictionary()


def attach_engine(net: Net, engine: Engine) -> None:
    """Let an engine decode in the place of a net, as long as the net's weights stay as they are."""
    _ENGINES[net] = engine


def find_engine(nets: Sequence[Net]) -> Engine | None:
    """The engine that decodes in the place of these nets; None if they run on torch."""
    engine = _ENGINES.get(nets[0]) if len(nets) == 1 else None
    return engine if engine is not None and engine.is_current() else None
