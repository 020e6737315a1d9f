"""An engine, and another one for what the first refuses."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from regard.decode.decode_request import Hypothesis, Request, SpecialTokens
from regard.decode.engine import ContinuousBatch, Engine, SequenceProgress

if TYPE_CHECKING:
    from regard.model.net import Net


class FallbackEngine:
    """Passes each request to the first engine that does not refuse it."""

    def __init__(self, first: Engine, rest: Engine) -> None:
        self.first, self.rest = first, rest

    @property
    def name(self) -> str:
        return self.first.name

    @property
    def length(self) -> int:
        return self.first.length

    @property
    def room(self) -> int | None:
        return self.first.room

    @property
    def nets(self) -> Sequence[Net]:
        return self.rest.nets

    def choose(self, request: Request) -> Engine:
        """The engine that decodes a request."""
        return self.first if self.first.find_refusal(request) is None else self.rest

    def find_refusal(self, request: Request) -> str | None:
        return self.choose(request).find_refusal(request)

    def encode(self, source: Sequence[int]) -> NDArray[np.float32]:
        return self.first.encode(source)

    def decode(self, request: Request) -> list[list[Hypothesis]]:
        return self.choose(request).decode(request)

    def open_batch(self) -> FallbackBatch:
        return FallbackBatch(self)

    def score(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], special: SpecialTokens
    ) -> list[list[float]]:
        return self.first.score(sources, targets, special)


class FallbackBatch:
    """A `ContinuousBatch` whose sequences are each in a batch of the engine that decodes them."""

    def __init__(self, engine: FallbackEngine) -> None:
        self._engine, self._lock, self._numbers = engine, threading.Lock(), itertools.count()
        self._batches: dict[int, ContinuousBatch] = {}
        self._places: dict[tuple[int, int], int] = {}
        """The number of a sequence, by the engine that decodes it and its number there."""

    def add(self, request: Request) -> int:
        engine = self._engine.choose(request)
        with self._lock:
            if id(engine) not in self._batches:
                self._batches[id(engine)] = engine.open_batch()
            place = id(engine), self._batches[id(engine)].add(request)
            self._places[place] = number = next(self._numbers)
        return number

    def remove(self, sequence: int) -> bool:
        with self._lock:
            place = next((place for place, number in self._places.items() if number == sequence), None)
            return place is not None and self._batches[place[0]].remove(place[1])

    def step(self) -> list[SequenceProgress]:
        with self._lock:
            batches = list(self._batches.items())
        found = [(key, progress) for key, batch in batches if len(batch) for progress in batch.step()]
        with self._lock:
            out = []
            for key, progress in found:
                place = key, progress.sequence
                number = self._places[place] if progress.hypotheses is None else self._places.pop(place)
                out.append(SequenceProgress(number, progress.token, progress.hypotheses))
        return out

    def __len__(self) -> int:
        with self._lock:
            return sum(map(len, self._batches.values()))

    def close(self) -> None:
        with self._lock:
            for batch in self._batches.values():
                batch.close()
            self._batches, self._places = {}, {}
