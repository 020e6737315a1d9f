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

from regard.decode.decode_request import Constraints, Draw, Request, SpecialTokens
from regard.decode.engine import SequenceProgress
from regard.decode.generation import check_request, start_batch
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
"""Properties that sequences share which are searched for together."""


def _is_alone(request: Request) -> bool:
    """True if the constraints of a request are of a kind that is not joined."""
    return request.constraints.prefixes is not None or request.constraints.must_include is not None


def _find_group(request: Request) -> Group:
    """The settings of a request, except those that each sequence has for itself."""
    shared = dataclasses.replace(request.search, max_extra=0, max_length=None, seed=0)
    return shared, request.special, tuple(sorted(set(request.constraints.banned)))


def _find_entry(number: int, request: Request) -> object:
    """Requests that have this in common are encoded together; `number` is that of the sequence."""
    limits = request.search.max_extra, request.search.max_length
    return _find_group(request), limits, request.draw.first_step, number if _is_alone(request) else None


class TorchBatch:
    """A `ContinuousBatch` of one model, or of several that average their probabilities."""

    def __init__(self, nets: Sequence[Net], *, entering_tokens: int = ENTERING_TOKENS) -> None:
        self._nets, self._entering_tokens = nets, entering_tokens
        self._joins = all(net.spec.decoder is not None and net.spec.decoder.joins for net in nets)
        self._lock, self._numbers = threading.Lock(), itertools.count()
        self._waiting: dict[int, Request] = {}
        self._alive: set[int] = set()
        self._left: set[int] = set()
        self._groups: dict[Group, SearchBatch] = {}
        self._alone: list[SearchBatch] = []
        self._waited = 0

    def add(self, request: Request) -> int:
        check_request(self._nets, request)
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = request
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

    def _choose_entering(self) -> list[tuple[Group | None, dict[int, Request]]]:
        """Sequences that enter now, first come first served, by what they have in common; None: nothing joins them."""
        running = sum(len(batch.keys) for batch in self._list_batches())
        if self._waiting and len(self._waiting) * FEW < running and self._waited < PATIENCE:
            self._waited += 1
            return []
        self._waited = 0
        found: dict[object, dict[int, Request]] = {}
        tokens, starting = 0, dict[Group, object]()
        for number, request in list(self._waiting.items()):
            key, group = _find_entry(number, request), _find_group(request)
            if not self._joins and (group in self._groups or starting.setdefault(group, key) != key):
                continue  # a fixed batch: it runs to its end before the next one starts
            tokens += len(request.sources[0]) * request.rows
            if found and tokens > self._entering_tokens:
                break
            found.setdefault(key, {})[number] = self._waiting.pop(number)
        groups = []
        for some in found.values():
            one = next(iter(some.values()))
            groups.append((None if _is_alone(one) else _find_group(one), some))
        return groups

    def _start(self, some: dict[int, Request]) -> SearchBatch:
        each = list(some.values())
        one = each[0]
        together = dataclasses.replace(
            one,
            sources=[request.sources[0] for request in each],
            constraints=one.constraints if _is_alone(one) else Constraints(one.constraints.banned),
            draw=Draw([request.numbers[0] for request in each], one.draw.first_step),
        )
        batch = start_batch(self._nets, together, seeds=[request.search.seed for request in each])
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
