"""Continuous batching on torch.

Sequences with the same settings are searched for in one batch, which others join after their first step:

    add ─▶ waiting ─▶ encode, first step ─▶ join the batch of the same settings ─▶ step ─▶ … ─▶ over

Each step encodes a limited number of waiting tokens, so that the running sequences are not held up. Where many are running, a
new one waits a few steps for others: joining moves the states of all. A model whose mixers cannot join, or a sequence with a
prefix or terms, has a batch that nothing joins.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Sequence

from regard.decode.decode_request import Constraints, Draw, SpecialTokens
from regard.decode.engine import SequenceProgress
from regard.decode.generation import check_request, start_batch
from regard.decode.lexical_constraints import widen_beam
from regard.decode.search import Search
from regard.decode.search_batch import SearchBatch
from regard.model.net import Net
from regard.stopping import check_stops

ENTERING_TOKENS = 1024
"""Source tokens, over all hypotheses, that are encoded in one step."""
PATIENCE = 4
"""Steps that a sequence waits for others to enter with, at most."""
FEW = 8
"""Sequences wait for others only while more than this many times as many are running."""
Group = tuple[Search, SpecialTokens, tuple[int, ...]]
"""What sequences that are searched for together share."""


@dataclasses.dataclass(frozen=True)
class _Sequence:
    source: Sequence[int]
    search: Search
    special: SpecialTokens
    constraints: Constraints
    draw: Draw

    @property
    def is_alone(self) -> bool:
        """Whether its constraints are of a kind that is not joined."""
        return self.constraints.prefixes is not None or self.constraints.must_include is not None

    @property
    def group(self) -> Group:
        """Its settings, except those that each sequence has for itself."""
        shared = dataclasses.replace(self.search, max_extra=0, max_length=None, seed=0)
        return shared, self.special, tuple(sorted(set(self.constraints.banned)))

    @property
    def enters_with(self) -> object:
        """Sequences that have this in common are encoded together."""
        limits = self.search.max_extra, self.search.max_length
        return self.group, limits, self.draw.first_step, id(self) if self.is_alone else None


class TorchBatch:
    """A `ContinuousBatch` of one model, or of several that average their probabilities."""

    def __init__(self, nets: Sequence[Net], *, entering_tokens: int = ENTERING_TOKENS) -> None:
        self._nets, self._entering_tokens = nets, entering_tokens
        self._joins = all(net.spec.decoder is not None and net.spec.decoder.joins for net in nets)
        self._lock, self._numbers = threading.Lock(), itertools.count()
        self._waiting: dict[int, _Sequence] = {}
        self._alive: set[int] = set()
        self._left: set[int] = set()
        self._groups: dict[Group, SearchBatch] = {}
        self._alone: list[SearchBatch] = []
        self._waited = 0

    def add(
        self,
        source: Sequence[int],
        search: Search,
        special: SpecialTokens,
        *,
        constraints: Constraints = Constraints(),
        draw: Draw = Draw(),
    ) -> int:
        check_request(self._nets, [source], search, special, constraints)
        terms = constraints.terms(0)
        search = dataclasses.replace(search, beam=widen_beam(search.beam, terms)) if terms else search
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = _Sequence(source, search, special, constraints, draw)
            self._alive.add(number)
        return number

    def remove(self, sequence: int) -> bool:
        with self._lock:
            if sequence not in self._alive:
                return False
            self._alive.discard(sequence)
            if self._waiting.pop(sequence, None) is None:
                self._left.add(sequence)
            return True

    def step(self) -> list[SequenceProgress]:
        check_stops()
        with self._lock:
            left, self._left = self._left, set()
            entering = self._choose_entering()
        for batch in self._list_batches():
            batch.drop(left)
        out = [progress for batch in self._list_batches() for progress in self._advance(batch)]
        for group, batch in [(key, self._start(some)) for key, some in entering]:
            out += self._advance(batch)
            self._let_join(group, batch)
        self._groups = {key: batch for key, batch in self._groups.items() if batch.keys}
        self._alone = [batch for batch in self._alone if batch.keys]
        with self._lock:
            out = [progress for progress in out if progress.sequence in self._alive]
            self._alive -= {progress.sequence for progress in out if progress.hypotheses is not None}
        return out

    def __len__(self) -> int:
        with self._lock:
            return len(self._alive)

    def close(self) -> None:
        with self._lock:
            self._waiting.clear()
            self._alive.clear()
            self._left.clear()
        self._groups, self._alone = {}, []

    def _list_batches(self) -> list[SearchBatch]:
        return [*self._groups.values(), *self._alone]

    def _choose_entering(self) -> list[tuple[Group | None, dict[int, _Sequence]]]:
        """Sequences that enter now, first come first served, by what they have in common; None: nothing joins them."""
        running = sum(len(batch.keys) for batch in self._list_batches())
        if self._waiting and len(self._waiting) * FEW < running and self._waited < PATIENCE:
            self._waited += 1
            return []
        self._waited = 0
        found: dict[object, dict[int, _Sequence]] = {}
        tokens, starting = 0, dict[Group, object]()
        for number, sequence in list(self._waiting.items()):
            key = sequence.enters_with
            if not self._joins and (sequence.group in self._groups or starting.setdefault(sequence.group, key) != key):
                continue  # a fixed batch: it runs to its end before the next one starts
            beam = 1 if sequence.search.sample else sequence.search.beam
            tokens += len(sequence.source) * beam
            if found and tokens > self._entering_tokens:
                break
            found.setdefault(key, {})[number] = self._waiting.pop(number)
        groups = []
        for some in found.values():
            one = next(iter(some.values()))
            groups.append((None if one.is_alone else one.group, some))
        return groups

    def _start(self, some: dict[int, _Sequence]) -> SearchBatch:
        each = list(some.values())
        one = each[0]
        constraints = one.constraints if one.is_alone else Constraints(one.constraints.banned)
        numbers = [0 if sequence.draw.numbers is None else sequence.draw.numbers[0] for sequence in each]
        batch = start_batch(
            self._nets, [sequence.source for sequence in each], one.search, one.special, constraints=constraints,
            draw=Draw(numbers, one.draw.first_step), seeds=[sequence.search.seed for sequence in each],
        )  # fmt: skip
        batch.keys = list(some)
        return batch

    def _let_join(self, group: Group | None, batch: SearchBatch) -> None:
        if group is None:
            self._alone.append(batch)
        elif group in self._groups and self._groups[group].keys:
            self._groups[group].join(batch)
        else:
            self._groups[group] = batch

    def _advance(self, batch: SearchBatch) -> list[SequenceProgress]:
        if not batch.keys:
            return []
        step = batch.step()
        tokens: list[int | None] = [None] * len(step.keys)
        if step.tokens is not None:
            eos = batch.eos
            tokens = [None if token == eos else token for token in step.tokens.tolist()]
        return [SequenceProgress(key, token, step.done.get(key)) for key, token in zip(step.keys, tokens, strict=True)]
