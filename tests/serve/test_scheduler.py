"""Many threads, one batch: each gets its own outputs, clients take turns, and who leaves frees a slot."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import pytest

from regard.decode import Hypothesis, Request, Search, generate, stream_tokens
from regard.decode.decode_request import Constraints, Draw
from regard.decode.engine import SequenceProgress
from regard.engine.choose_engine import open_native
from regard.engine.torch_engine import TorchEngine
from regard.errors import NoRoom
from regard.serve.scheduler import Scheduler
from regard.serve.ticket import CURRENT, RequestCancelled, Ticket
from regard.stopping import Rests, check_stops, rest
from tests.decode.test_search_batch import SEARCHES, SOURCES, SPECIAL, check_same, make_nets

pytestmark = pytest.mark.numeric
T = TypeVar("T")
NET = make_nets()["transformer"]
GREEDY = Search(beam=1, max_extra=5)


class SlowBatch:
    """A batch in which a sequence takes as many steps as its source has tokens, and that writes down who was in it."""

    def __init__(self) -> None:
        self.running: dict[int, int] = {}
        self.sources: dict[int, int] = {}
        self.seen: list[set[int]] = []
        self.gate = threading.Event()
        self._count = 0

    def add(self, request: Request) -> int:
        (source,) = request.sources
        self._count += 1
        self.running[self._count], self.sources[self._count] = len(source), source[0]
        return self._count

    def remove(self, sequence: int) -> bool:
        return self.running.pop(sequence, None) is not None

    def step(self) -> list[SequenceProgress]:
        self.gate.wait(10)
        self.seen.append({self.sources[n] for n in self.running})
        out = []
        for number in list(self.running):
            self.running[number] -= 1
            done = None if self.running[number] else [Hypothesis((self.sources[number],), 0.0, 0.0)]
            out.append(SequenceProgress(number, 7, done))
            if done:
                del self.running[number]
        return out

    def __len__(self) -> int:
        return len(self.running)

    def close(self) -> None:
        self.running.clear()


class SlowEngine(TorchEngine):
    def __init__(self) -> None:
        super().__init__(NET)
        self.batch = SlowBatch()

    def open_batch(self) -> SlowBatch:  # type: ignore[override]
        return self.batch


@contextmanager
def scheduler(engine: TorchEngine, **more: int) -> Iterator[Scheduler]:
    made = Scheduler(engine, **more)
    try:
        yield made
    finally:
        made.close()
        made._thread.join(10)
        assert not made._thread.is_alive()


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def decode_as(made: Scheduler, ticket: Ticket, sources: list[list[int]], search: Search = GREEDY) -> list[int]:
    CURRENT.set(ticket)
    return [row[0].tokens[0] for row in made.decode(Request(sources, search, SPECIAL))]


def test_threads_get_what_they_get_alone() -> None:
    nets = make_nets()
    net = nets["transformer"]
    searches = list(SEARCHES.values()) * 4
    wanted = [generate([net], Request(SOURCES, search, SPECIAL)) for search in searches]
    with scheduler(TorchEngine(net), slots=8) as made:
        with ThreadPoolExecutor(len(searches)) as pool:
            found = list(pool.map(lambda search: made.decode(Request(SOURCES, search, SPECIAL)), searches))
        for rows, others in zip(found, wanted, strict=True):
            for got, each in zip(rows, others, strict=True):
                check_same(got, each)
        assert list(stream_tokens(made, Request([SOURCES[0]], GREEDY, SPECIAL))) == list(
            generate([net], Request([SOURCES[0]], GREEDY, SPECIAL))[0][0].tokens
        )
        assert made.stats.running == made.stats.waiting == 0 and made.stats.sequences >= 60


def test_clients_take_turns() -> None:
    engine = SlowEngine()
    with scheduler(engine, slots=2) as made, ThreadPoolExecutor(2) as pool:
        many = pool.submit(decode_as, made, Ticket("many"), [[1, 1]] * 8)
        wait_until(lambda: len(engine.batch.running) == 2)
        one = pool.submit(decode_as, made, Ticket("one"), [[2, 2]])
        wait_until(lambda: made.stats.waiting == 7)
        engine.batch.gate.set()
        assert one.result(10) == [2] and many.result(10) == [1] * 8
        first = next(i for i, seen in enumerate(engine.batch.seen) if 2 in seen)
        assert first <= 4  # not after the eight of the other client


def test_long_calls_of_others_do_not_come_between_all_steps() -> None:
    """A call is one score or embedding, of whatever length; a sequence has its time in between."""
    engine, done = SlowEngine(), list[float]()
    engine.batch.gate.set()

    def call() -> None:
        time.sleep(0.2)
        done.append(time.monotonic())

    with scheduler(engine) as made, ThreadPoolExecutor(12) as pool:
        calls = [pool.submit(made.run, call) for _ in range(10)]
        wait_until(lambda: made.stats.waiting > 5)
        assert decode_as(made, Ticket("one"), [[1] * 20]) == [1]
        ended = time.monotonic()
        for each in calls:
            each.result(20)
    assert (
        sum(at < ended for at in done) <= 5
    )  # not all ten: each of them would have come after one of the twenty steps


def test_a_sentence_enters_with_all_its_beams() -> None:
    engine = SlowEngine()
    wide = Search(beam=3, max_extra=5)
    with scheduler(engine, slots=4) as made, ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(decode_as, made, Ticket(str(i)), [[i, i]], wide) for i in (1, 2)]
        wait_until(lambda: made.stats.waiting == 1)
        assert made.stats.rows == 3
        engine.batch.gate.set()
        assert [job.result(10) for job in jobs] == [[1], [2]]
        assert all(len(seen) == 1 for seen in engine.batch.seen)


def test_who_leaves_frees_a_slot_before_the_next_step() -> None:
    engine, ticket = SlowEngine(), Ticket("a")
    with scheduler(engine, slots=1) as made, ThreadPoolExecutor(3) as pool:
        leaves = pool.submit(decode_as, made, ticket, [[1] * 1000])
        wait_until(lambda: len(engine.batch.running) == 1)
        waits = pool.submit(decode_as, made, Ticket("b"), [[2]])
        wait_until(lambda: made.stats.waiting == 1)
        ticket.cancel()
        engine.batch.gate.set()
        with pytest.raises(RequestCancelled, match="was cancelled"):
            leaves.result(10)
        assert waits.result(10) == [2]
        assert sum(1 in seen for seen in engine.batch.seen) <= 1
        assert made.stats.running == 0


def test_a_stream_that_nobody_reads_any_longer_leaves() -> None:
    nets = make_nets()
    net = nets["gpt"]
    with scheduler(TorchEngine(net), has_encoder=False) as made:
        pieces = stream_tokens(made, Request([[3, 4]], Search(beam=1, max_extra=30), SPECIAL))
        next(pieces)
        pieces.close()  # type: ignore[attr-defined]
        wait_until(lambda: made.stats.running == 0)


def test_errors_reach_whom_they_concern() -> None:
    with scheduler(TorchEngine(NET)) as made:
        with pytest.raises(NoRoom):
            made.decode(Request([SOURCES[0]], GREEDY, SPECIAL, Constraints(prefixes=[[3] * 50])))
        with pytest.raises(ZeroDivisionError):
            made.run(lambda: 1 // 0)
        assert made.run(lambda: 3) == 3
        assert len(made.decode(Request(SOURCES, GREEDY, SPECIAL, draw=Draw(range(5))))) == 5

        def fail() -> list[SequenceProgress]:
            raise RuntimeError("a broken step")

        made._batch.step = fail  # type: ignore[method-assign]
        with pytest.raises(RuntimeError, match="a broken step"):
            made.decode(Request([SOURCES[0]], GREEDY, SPECIAL))
        assert made.decode(Request([SOURCES[0]], GREEDY, SPECIAL))  # with a new batch
    with pytest.raises(RequestCancelled, match="was unloaded; try again"):
        made.decode(Request([SOURCES[0]], GREEDY, SPECIAL))


def test_usage_is_counted() -> None:
    ticket = Ticket("a")
    with scheduler(TorchEngine(NET)) as made:
        CURRENT.set(ticket)
        (found,) = made.decode(Request([SOURCES[2]], GREEDY, SPECIAL))
        CURRENT.set(None)
    assert ticket.usage["prompt_tokens"] == len(SOURCES[2])
    assert ticket.usage["completion_tokens"] == len(found[0].tokens)


def test_a_native_call_ends_when_its_request_does() -> None:
    ticket, begun = Ticket("a"), threading.Event()

    def compute() -> None:
        begun.set()
        while True:  # as the native engine looks at the flag
            check_stops()

    def ask(made: Scheduler) -> None:
        CURRENT.set(ticket)
        made.run(compute)

    with scheduler(TorchEngine(NET)) as made, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, made)
        assert begun.wait(20)
        ticket.cancel()
        with pytest.raises(RequestCancelled, match="was cancelled"):
            asked.result(20)
        assert made.run(lambda: 3) == 3  # its thread is free again


def test_a_long_call_lets_other_clients_go_first_between_its_batches() -> None:
    """Another client's call, and sequences: neither waits until the whole call is over."""
    engine, order, begun = SlowEngine(), list[str](), threading.Event()
    engine.batch.gate.set()

    def compute_long() -> int:
        for _ in range(200):
            rest()
            order.append("batch")
            begun.set()
            time.sleep(0.01)
        return 200

    def ask(client: str, call: Callable[[], T]) -> T:
        CURRENT.set(Ticket(client))
        return made.run(call)

    with scheduler(engine) as made, ThreadPoolExecutor(4) as pool:
        many = [pool.submit(ask, "many", compute_long) for _ in range(2)]
        assert begun.wait(20)
        assert pool.submit(ask, "one", lambda: order.append("other")).result(20) is None
        assert pool.submit(decode_as, made, Ticket("two"), [[1] * 3]).result(20) == [1]
        order.append("decoded")
        assert [each.result(20) for each in many] == [200, 200]
        assert made.stats.waiting == made.stats.running == 0
    assert order.index("other") < order.index("decoded") < 200  # before the end of the first one


def test_calls_are_taken_one_of_each_client_in_turn() -> None:
    order, gate = list[str](), threading.Event()

    def ask(client: str, call: Callable[[], object]) -> None:
        CURRENT.set(Ticket(client))
        made.run(call)

    with scheduler(TorchEngine(NET)) as made, ThreadPoolExecutor(12) as pool:
        first = pool.submit(ask, "many", lambda: gate.wait(20))
        wait_until(lambda: made._turn is not None)
        calls = [pool.submit(ask, "many", lambda: order.append("many")) for _ in range(6)]
        wait_until(lambda: made.stats.waiting == 6)
        calls.append(pool.submit(ask, "one", lambda: order.append("one")))
        wait_until(lambda: made.stats.waiting == 7)
        gate.set()
        for each in (first, *calls):
            each.result(20)
    assert order.index("one") <= 1  # not after the six


def test_a_call_that_rests_ends_with_its_request() -> None:
    ticket, resting, begun = Ticket("a"), threading.Event(), threading.Event()

    def compute() -> None:
        begun.set()
        while True:
            rest()

    def ask(of: Ticket, call: Callable[[], object]) -> object:
        CURRENT.set(of)
        return made.run(call)

    with scheduler(TorchEngine(NET)) as made, ThreadPoolExecutor(2) as pool:
        asked = pool.submit(ask, ticket, compute)
        assert begun.wait(20)

        def cancel() -> None:  # it has its turn while the other one rests
            resting.set()
            ticket.cancel()

        pool.submit(ask, Ticket("b"), cancel).result(20)
        with pytest.raises(RequestCancelled, match="was cancelled"):
            asked.result(20)
        wait_until(lambda: made.stats.waiting == 0)
        assert resting.is_set() and made.run(lambda: 3) == 3


def test_a_scheduler_that_closes_finishes_calls_that_rest() -> None:
    begun, go = threading.Event(), threading.Event()

    def compute() -> int:
        for _ in range(50):
            made.poke()  # so that it rests each time
            rest()
            begun.set()
            go.wait(20)
        return 50

    with scheduler(TorchEngine(NET)) as made, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(made.run, compute)
        assert begun.wait(20)
        made.close()
        go.set()
        assert asked.result(20) == 50
    wait_until(lambda: not [each for each in made._idle if each.thread.is_alive()])


def test_scores_that_rest_are_those_without_a_rest() -> None:
    sources, targets = SOURCES * 40, [[*source, SPECIAL.eos] for source in SOURCES] * 40
    for engine in (TorchEngine(NET), open_native(NET, threads=1)):
        alone = engine.score(sources, targets, SPECIAL)
        rested = list[int]()
        with Rests(lambda rested=rested: rested.append(1)):  # type: ignore[misc]
            assert engine.score(sources, targets, SPECIAL) == alone
        assert len(rested) > 1 or isinstance(engine, TorchEngine)
        assert [
            engine.score([s], [t], SPECIAL)[0] for s, t in zip(sources, targets, strict=True)
        ] == alone or isinstance(engine, TorchEngine)
