"""Fixed batches, for engines that decode whole sentences.

What was added with the same settings is decoded together in one step, to the end.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable, Sequence

from regard.decode.decode_request import Constraints, Draw, Hypothesis, SpecialTokens
from regard.decode.engine import Engine, SequenceProgress
from regard.decode.search import Search
from regard.errors import SpecError

CheckRequests = Callable[[Sequence[Sequence[int]], Search, SpecialTokens, Constraints], object]
"""Raises what `decode` raises for sources whose request cannot be met."""


@dataclasses.dataclass(frozen=True)
class _Added:
    source: Sequence[int]
    search: Search
    special: SpecialTokens
    constraints: Constraints
    draw: Draw

    @property
    def shared(self) -> object:
        """What sequences that are decoded together have in common."""
        kinds = self.constraints.prefixes is not None, self.constraints.must_include is not None
        return self.search, self.special, tuple(self.constraints.banned), self.draw.first_step, kinds


class FixedBatch:
    """A `ContinuousBatch` in which each step decodes everything that was added before it."""

    def __init__(self, engine: Engine, check: CheckRequests = lambda *_: None) -> None:
        self._engine, self._check, self._lock, self._numbers = engine, check, threading.Lock(), itertools.count()
        self._added: dict[int, _Added] = {}

    def add(
        self,
        source: Sequence[int],
        search: Search,
        special: SpecialTokens,
        *,
        constraints: Constraints = Constraints(),
        draw: Draw = Draw(),
    ) -> int:
        constraints.check(1)
        if refusal := self._engine.find_refusal(search, constraints):
            raise SpecError(f"engine {self._engine.name}: {refusal}")
        self._check([source], search, special, constraints)
        with self._lock:
            number = next(self._numbers)
            self._added[number] = _Added(source, search, special, constraints, draw)
        return number

    def remove(self, sequence: int) -> bool:
        with self._lock:
            return self._added.pop(sequence, None) is not None

    def step(self) -> list[SequenceProgress]:
        with self._lock:
            groups: dict[object, dict[int, _Added]] = {}
            for number, added in self._added.items():
                groups.setdefault(added.shared, {})[number] = added
        out = []
        for some in groups.values():
            for number, hypotheses in zip(some, self._decode(list(some.values())), strict=True):
                with self._lock:
                    if self._added.pop(number, None) is not None:  # nobody removed it meanwhile
                        out.append(SequenceProgress(number, None, hypotheses))
        return out

    def _decode(self, some: Sequence[_Added]) -> list[list[Hypothesis]]:
        one = some[0]
        forced = [each.constraints.prefixes[0] for each in some if each.constraints.prefixes is not None]
        terms = None if one.constraints.must_include is None else [each.constraints.terms(0) for each in some]
        numbers = [0 if each.draw.numbers is None else each.draw.numbers[0] for each in some]
        return self._engine.decode(
            [each.source for each in some], one.search, one.special,
            constraints=Constraints(one.constraints.banned, forced or None, terms), draw=Draw(numbers, one.draw.first_step),
        )  # fmt: skip

    def __len__(self) -> int:
        with self._lock:
            return len(self._added)

    def close(self) -> None:
        with self._lock:
            self._added.clear()
