"""Calls that are not decoding, which take turns.

    scheduler   │ step │ wait ········│ step │ wait ···│ step │ wait …
    call of A            batch, batch                          batch …
    call of B                                 batch, over

A call computes on a thread of its own, while that of the scheduler waits: one of them computes at a time. Between two batches
of its texts, where it holds little memory, it waits until it is its turn again, if others wait (`regard.stopping.rest`).
Batches are those that it would have alone, so its result is the same, too.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from queue import SimpleQueue

from regard.errors import CallStopped
from regard.serve.stop_torch import StopTorch
from regard.serve.ticket import ServerBusy, Ticket
from regard.serve.vital_signs import SchedulerRow
from regard.stopping import Rests

NO_THREAD = "there is no thread for this request now; try again"


class Worker:
    """A thread on which calls compute, one after the other."""

    def __init__(self) -> None:
        self._given: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.thread = threading.Thread(target=self._work, name="call", daemon=True)
        self.thread.start()

    def start(self, work: Callable[[], None] | None) -> None:
        """Let it work; None ends it."""
        self._given.put(work)

    def _work(self) -> None:
        while (work := self._given.get()) is not None:
            work()


@dataclasses.dataclass(eq=False)
class SharedCall:
    """Something else than decoding, and who waits for it."""

    compute: Callable[[], object]
    ticket: Ticket | None
    others_wait: Callable[[SharedCall], bool]
    outcome: Future[object] = dataclasses.field(default_factory=Future)
    worker: Worker | None = None
    """Since its first turn, until it is over."""
    _turn: threading.Semaphore = dataclasses.field(default_factory=lambda: threading.Semaphore(0))
    _back: threading.Semaphore = dataclasses.field(default_factory=lambda: threading.Semaphore(0))
    _is_over: bool = False

    @property
    def client(self) -> str:
        return "" if self.ticket is None else self.ticket.client

    def take_turn(self, row: SchedulerRow, idle: list[Worker]) -> bool:
        """Let it compute until it rests or is over; whether it is over. It takes an idle worker, or a new one."""
        ticket = self.ticket or Ticket()
        row.turn(ticket.number, ticket.deadline)
        if self.worker is not None:
            self._turn.release()
        elif ticket.is_cancelled or ticket.is_late:
            self.refuse(ticket.explain())
            return True
        else:
            try:
                self.worker = idle.pop() if idle else Worker()
            except RuntimeError:  # the system has no more threads
                self.refuse(ServerBusy(NO_THREAD))
                return True
            self.worker.start(lambda: self._run(ticket))
        self._back.acquire()
        if self._is_over:
            idle.append(self.worker)
            self.worker = None
        return self._is_over

    def _run(self, ticket: Ticket) -> None:
        try:
            with ticket.stop, Rests(self._rest), StopTorch(ticket.check):
                ticket.check()
                found = self.compute()
        except CallStopped:
            self.refuse(ticket.explain())
        except BaseException as error:
            self.refuse(error)
        else:
            with suppress(InvalidStateError):
                self.outcome.set_result(found)
        self._is_over = True
        self._back.release()

    def _rest(self) -> None:
        if self.others_wait(self):
            self._back.release()
            self._turn.acquire()

    def refuse(self, error: BaseException) -> None:
        """Raise an error in the thread that waits, unless it was told before."""
        with suppress(InvalidStateError):
            self.outcome.set_exception(error)

    def wait(self) -> object:
        """The outcome, or the error of a request that is cancelled before; that does not wait for what is computed."""
        if self.ticket is None:
            return self.outcome.result()
        ticket = self.ticket

        def leave() -> None:
            self.refuse(ticket.explain())

        ticket.watch(leave)
        try:
            with ticket.wait():
                return self.outcome.result()
        finally:
            ticket.unwatch(leave)


class CallQueue:
    """Calls that wait for their turn: the first one of each client in turn."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, deque[SharedCall]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._clients.values()))

    def __iter__(self) -> Iterator[SharedCall]:
        return (call for queue in self._clients.values() for call in queue)

    def add(self, call: SharedCall) -> None:
        self._clients.setdefault(call.client, deque()).append(call)

    def put_back(self, call: SharedCall) -> None:
        """Let a call that rests wait for its next turn: before those of its client, after the other clients."""
        self._clients.setdefault(call.client, deque()).appendleft(call)
        self._clients.move_to_end(call.client)

    def choose(self) -> SharedCall:
        """Take out the one whose turn it is."""
        client, queue = next(iter(self._clients.items()))
        call = queue.popleft()
        self._clients.move_to_end(client)
        if not queue:
            del self._clients[client]
        return call

    def has_others(self, client: str) -> bool:
        """Whether calls of another client wait."""
        return len(self._clients) > (client in self._clients)

    def list_begun(self) -> list[SharedCall]:
        """Calls that rest."""
        return [call for call in self if call.worker is not None]
