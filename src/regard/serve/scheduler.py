"""Continuous batching: many requests, one batch, fair turns.

    threads of requests ─▶ queues, one per client ─▶ slots of the batch ─▶ step ─▶ step ─▶ …

The scheduler is an engine: a model decodes through it as through any other, and does not know that its sentences share a batch
with those of other requests. One thread computes. Between two steps it lets sequences that are over or cancelled leave, lets
waiting ones enter, one of each client in turn, and gives a turn to one of the calls that are not decoding (a score, an
embedding), again one of each client in turn. A turn ends between two batches of the call's texts, if others wait
(`shared_time.py`), and the next one waits until the sequences had as much time as the last.
Slots are rows: a sentence enters with all of its beams or waits. Who waits is told at once when the request is cancelled or
late; what the thread computes for it ends before the next step, or the next function of torch.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from regard.decode.decode_request import Hypothesis, Request, SpecialTokens
from regard.decode.engine import Engine, SequenceProgress
from regard.model.net import Net
from regard.serve.shared_time import CallQueue, SharedCall, Worker
from regard.serve.ticket import CURRENT, RequestCancelled, Ticket
from regard.serve.vital_signs import IDLE, STEP, SchedulerRow
from regard.serve.work_limit import WorkLimit

SLOTS = 64
"""Rows that are decoded together."""
UNLOADED = "the model was unloaded; try again"
T = TypeVar("T")


@dataclasses.dataclass(eq=False)
class _Sequence:
    """A sequence of a request, and where its progress is sent."""

    request: Request
    ticket: Ticket
    tell: Callable[[SequenceProgress | BaseException], None]
    streams: bool = True
    """True if its caller wants to know each token, and not only the outcome."""
    is_withdrawn: bool = False
    written: int = 0
    """Tokens that its caller was told of."""

    @property
    def rows(self) -> int:
        return self.request.rows

    @property
    def leaves(self) -> bool:
        return self.is_withdrawn or self.ticket.is_cancelled


@dataclasses.dataclass(frozen=True)
class SchedulerStats:
    """Load of a scheduler, and what it has done so far."""

    waiting: int
    running: int
    rows: int
    steps: int
    sequences: int
    tokens: int


class Scheduler:
    """An `Engine` that decodes what many threads ask for in one batch of another engine."""

    def __init__(
        self, engine: Engine, *, slots: int = SLOTS, has_encoder: bool = True, row: SchedulerRow | None = None,
        limit: WorkLimit | None = None,
    ) -> None:  # fmt: skip
        self._limit = limit
        self._engine, self._slots, self._has_encoder, self._row = engine, slots, has_encoder, row or SchedulerRow()
        self._batch = engine.open_batch()
        self._wake = threading.Condition()
        self._waiting: OrderedDict[str, deque[_Sequence]] = OrderedDict()
        self._running: dict[int, _Sequence] = {}
        self._calls, self._idle = CallQueue(), list[Worker]()
        self._turn: SharedCall | None = None
        """The call that computes."""
        self._poked = True
        self._owed = 0.0
        """Seconds that sequences have for their steps before the next turn of a call: as long as the last one took."""
        self._closed, self._steps, self._sequences, self._tokens = False, 0, 0, 0
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------------------------------------ as an engine

    @property
    def name(self) -> str:
        return self._engine.name

    @property
    def length(self) -> int:
        return self._engine.length

    @property
    def room(self) -> int | None:
        return self._engine.room

    @property
    def nets(self) -> Sequence[Net]:
        return self._engine.nets

    def find_refusal(self, request: Request) -> str | None:
        return self._engine.find_refusal(request)

    def encode(self, source: Sequence[int]) -> NDArray[np.float32]:
        return self.run(lambda: self._engine.encode(source))

    def score(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], special: SpecialTokens
    ) -> list[list[float]]:
        return self.run(lambda: self._engine.score(sources, targets, special))

    def decode(self, request: Request) -> list[list[Hypothesis]]:
        if self._is_computing:  # a call that decodes: it has its turn now
            return self._engine.decode(request)
        batch = ClientBatch(self, CURRENT.get() or Ticket(), streams=False)
        for i in range(len(request)):
            batch.add(request.select([i]))
        found = dict[int, list[Hypothesis]]()
        try:
            while len(batch):
                found |= {each.sequence: each.hypotheses for each in batch.step() if each.hypotheses is not None}
        finally:
            batch.close()
        return [found[i] for i in range(len(request))]

    def open_batch(self) -> ClientBatch:
        """The sequences of one caller, who waits for them; they share the batch of all."""
        return ClientBatch(self, CURRENT.get() or Ticket())

    # ------------------------------------------------------------------------------------------------ for requests

    def run(self, call: Callable[[], T]) -> T:
        """Run something else than decoding while nothing else computes, and wait for it."""
        if self._is_computing:
            return call()
        waiting = SharedCall(call, CURRENT.get(), self._others_wait)
        with self._wake:
            if self._closed:
                raise RequestCancelled(UNLOADED)
            self._calls.add(waiting)
            self._wake.notify()
        return waiting.wait()  # type: ignore[return-value]

    def poke(self) -> None:
        """Let the loop turn, so that its row shows that it can. It may be called while the scheduler is stuck."""
        self._poked = True
        if self._wake.acquire(blocking=False):
            self._wake.notify()
            self._wake.release()

    @property
    def stats(self) -> SchedulerStats:
        with self._wake:
            waiting = sum(map(len, self._waiting.values())) + len(self._calls)
            rows = sum(sequence.rows for sequence in self._running.values())
            return SchedulerStats(waiting, len(self._running), rows, self._steps, self._sequences, self._tokens)

    def limit_output(self, request: Request) -> int:
        """Maximum number of tokens that are written for the one source of a request."""
        return request.search.limit(len(request.sources[0]) if self._has_encoder else 0)

    def submit(self, sequence: _Sequence) -> None:
        """Let a sequence wait for its turn, unless it would need too much memory then."""
        if self._limit is not None:
            (source,), written = sequence.request.sources, self.limit_output(sequence.request)
            self._limit.check_sequence(len(source), written, sequence.rows, has_encoder=self._has_encoder)
        sequence.ticket.watch(self._notify)
        with self._wake:
            if self._closed:
                raise RequestCancelled(UNLOADED)
            self._waiting.setdefault(sequence.ticket.client, deque()).append(sequence)
            self._wake.notify()

    def withdraw(self, sequence: _Sequence) -> None:
        """Let a sequence leave before the next step; nobody waits for it any longer."""
        sequence.is_withdrawn = True
        self._notify()

    def close(self) -> None:
        """Stop after what is running; what waits is refused."""
        with self._wake:
            self._closed = True
            self._wake.notify()

    # ------------------------------------------------------------------------------------------------ the thread

    def _notify(self) -> None:
        with self._wake:
            self._wake.notify()

    @property
    def _is_computing(self) -> bool:
        """Whether this is the thread that computes now."""
        turn = self._turn
        if turn is None or turn.worker is None:
            return threading.current_thread() is self._thread
        return threading.current_thread() is turn.worker.thread

    def _others_wait(self, call: SharedCall) -> bool:
        """Whether a call should let others have their turn, or this thread show that it can."""
        with self._wake:
            return bool(self._running or self._waiting or self._poked or self._calls.has_others(call.client))

    def _run(self) -> None:
        while True:
            with self._wake:
                self._row.turn(IDLE)
                self._wake.wait_for(
                    lambda: self._closed or self._running or self._waiting or len(self._calls) or self._poked
                )
                self._poked = False
                begun = self._calls.list_begun() if self._closed else []
                if self._closed and not self._running and not begun:
                    break
                self._drop_leaving()
                entering = self._choose_entering()
                decodes = bool(self._running or entering)
                call = self._calls.choose() if len(self._calls) and (self._owed <= 0 or not decodes) else None
            for sequence in entering:
                self._enter(sequence)
            if self._running:
                self._row.turn(STEP)
                began = time.monotonic()
                self._step()
                self._owed -= time.monotonic() - began
            if call is not None:
                began = time.monotonic()
                self._let_compute(call)
                self._owed = time.monotonic() - began
        self._refuse_rest()
        for worker in self._idle:
            worker.start(None)
        self._batch.close()
        self._row.close()

    def _let_compute(self, call: SharedCall) -> None:
        """Give a call its turn."""
        self._turn = call
        is_over = call.take_turn(self._row, self._idle)
        self._turn = None
        if not is_over:
            with self._wake:
                self._calls.put_back(call)

    def _drop_leaving(self) -> None:
        for number, sequence in list(self._running.items()):
            if sequence.leaves:
                del self._running[number]
                self._batch.remove(number)
                sequence.tell(sequence.ticket.explain())
        for client, queue in list(self._waiting.items()):
            for sequence in [each for each in queue if each.leaves]:
                queue.remove(sequence)
                sequence.tell(sequence.ticket.explain())
            if not queue:
                del self._waiting[client]

    def _choose_entering(self) -> list[_Sequence]:
        """Take the sequences that fit into free slots: the next one of each client in turn."""
        free = self._slots - sum(sequence.rows for sequence in self._running.values())
        chosen: list[_Sequence] = []
        while self._waiting:
            client, queue = next(iter(self._waiting.items()))
            if queue[0].rows > free and (chosen or self._running):
                break  # it is the turn of this one: nobody overtakes it
            free -= queue[0].rows
            chosen.append(queue.popleft())
            self._waiting.move_to_end(client)
            if not queue:
                del self._waiting[client]
        return chosen

    def _enter(self, sequence: _Sequence) -> None:
        try:
            number = self._batch.add(sequence.request)
        except Exception as error:
            sequence.tell(error)
            return
        with self._wake:
            self._running[number] = sequence
        if sequence.ticket.row is not None:
            sequence.ticket.row.join_batch(self._row.place)

    def _step(self) -> None:
        try:
            progress = self._batch.step()
        except Exception as error:  # what exactly failed is not known: all of them have to be told
            with self._wake:
                lost, self._running = self._running, {}
                self._batch.close()
                self._batch = self._engine.open_batch()
            for sequence in lost.values():
                sequence.tell(error)
            return
        with self._wake:
            self._steps += 1
            for each in progress:
                taker = self._running.get(each.sequence)
                if taker is None:
                    continue
                if each.hypotheses is not None:
                    del self._running[each.sequence]
                    self._sequences += 1
                    self._tokens += count_tokens(each.hypotheses)
                    taker.tell(each)
                elif each.token is not None and taker.streams:
                    taker.tell(each)

    def _refuse_rest(self) -> None:
        with self._wake:
            for queue in self._waiting.values():
                for sequence in queue:
                    sequence.tell(RequestCancelled(UNLOADED))
            self._waiting.clear()
            for call in self._calls:
                call.refuse(RequestCancelled(UNLOADED))


def count_tokens(hypotheses: Sequence[Hypothesis]) -> int:
    """The number of tokens of the best hypothesis."""
    return len(hypotheses[0].tokens) if hypotheses else 0


class ClientBatch:
    """A `ContinuousBatch` for one caller: what it adds is decoded by the scheduler, and `step` waits for news.

    It notes on the caller's ticket how many tokens were read and written, also of what leaves early.
    """

    def __init__(self, scheduler: Scheduler, ticket: Ticket, *, streams: bool = True) -> None:
        self._scheduler, self._ticket, self._streams = scheduler, ticket, streams
        self._events: SimpleQueue[tuple[int, SequenceProgress | BaseException]] = SimpleQueue()
        self._open: dict[int, _Sequence] = {}
        self._count = 0
        ticket.watch(self._leave)

    def add(self, request: Request) -> int:
        self._ticket.check()
        number, self._count = self._count, self._count + 1
        sequence = _Sequence(request, self._ticket, lambda event: self._events.put((number, event)), self._streams)
        self._scheduler.submit(sequence)
        self._open[number] = sequence
        self._ticket.prompt_tokens += len(request.sources[0])
        return number

    def remove(self, sequence: int) -> bool:
        found = self._open.pop(sequence, None)
        if found is not None:
            self._scheduler.withdraw(found)
        return found is not None

    def step(self) -> list[SequenceProgress]:
        with self._ticket.wait():
            number, event = self._events.get()
        if isinstance(event, BaseException):
            raise event
        if number not in self._open:
            return []
        sequence, written = self._open[number], 0 if event.token is None else 1
        if event.hypotheses is not None:
            del self._open[number]
            total = count_tokens(event.hypotheses)
            limit = self._scheduler.limit_output(sequence.request)
            self._ticket.finish = "length" if total >= limit else "stop"
            written = total - sequence.written
        sequence.written += written
        self._ticket.completion_tokens += written
        return [dataclasses.replace(event, sequence=number)]

    def __len__(self) -> int:
        return len(self._open)

    def close(self) -> None:
        self._ticket.unwatch(self._leave)
        for number in list(self._open):
            self.remove(number)

    def _leave(self) -> None:
        """Tell who waits that the request has ended, without the scheduler, which may be stuck."""
        self._events.put((-1, self._ticket.explain()))
