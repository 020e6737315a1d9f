"""Sequences that join and leave a running batch give what each gives alone, on every engine."""

from __future__ import annotations

import dataclasses
import random
import threading
from collections.abc import Callable

import pytest

from regard.decode import Constraints, Draw, Hypothesis, Request, Search, stream_tokens
from regard.decode.engine import ContinuousBatch, Engine
from regard.engine.choose_engine import open_native
from regard.engine.fallback_engine import FallbackEngine
from regard.engine.native_library import NativeError
from regard.engine.torch_engine import TorchEngine
from regard.errors import NoRoom, SpecError
from regard.model.net import Net
from tests.engine.models import FAMILIES, SPECIAL, build, differ, make_sources

pytestmark = pytest.mark.numeric
REQUESTS = [
    (Search(beam=1, max_extra=9), Constraints(), Draw()),
    (Search(beam=3, n_best=2, max_extra=6), Constraints(banned=[5, 6]), Draw()),
    (Search(beam=1, sample=True, seed=4, max_extra=12), Constraints(), Draw([7], 2)),
    (Search(beam=1, max_extra=5), Constraints(prefixes=[[9, 5]]), Draw()),
    (Search(beam=1, sample=True, seed=4, top_k=5, max_length=3), Constraints(), Draw([1])),
]


def finish(batch: ContinuousBatch) -> dict[int, list[Hypothesis]]:
    """Step until the batch is empty."""
    out = {}
    while len(batch):
        out |= {p.sequence: p.hypotheses for p in batch.step() if p.hypotheses is not None}
    return out


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ["transformer", "gpt", "llama", "t5"])
def test_joined_is_alone(name: str, threads: int) -> None:
    """Sequences of all kinds join while others run, and some leave; each result is that of `decode`."""
    net, draw = build(FAMILIES[name]), random.Random(3)
    engine = open_native(net, threads=threads)
    sources = make_sources(net, 25)
    asked = [REQUESTS[i % len(REQUESTS)] for i in range(len(sources))]
    batch, numbers, found, left = engine.open_batch(), dict[int, int](), dict[int, list[Hypothesis]](), set[int]()
    waiting = list(range(len(sources)))
    while waiting or len(batch):
        for _ in range(draw.randrange(3)):
            if waiting:
                i = waiting.pop()
                search, constraints, drawn = asked[i]
                numbers[batch.add(Request([sources[i]], search, SPECIAL, constraints, draw=drawn))] = i
        for progress in batch.step():
            if progress.hypotheses is not None:
                found[numbers[progress.sequence]] = progress.hypotheses
        if draw.random() < 0.1 and len(batch):
            number = draw.choice(sorted(numbers))
            if numbers[number] not in found:
                assert batch.remove(number) and not batch.remove(number)
                left.add(numbers[number])
    assert len(found) + len(left) == len(sources) and not left & found.keys()
    for i, hypotheses in found.items():
        search, constraints, drawn = asked[i]
        alone = engine.decode(Request([sources[i]], search, SPECIAL, constraints, draw=drawn))
        assert not differ([hypotheses], alone)
    assert engine.open_batch().step() == []


@pytest.mark.parametrize("kind", ["native", "torch", "fallback"])
def test_every_engine_has_batches(kind: str) -> None:
    net = build(FAMILIES["transformer"])
    kinds: dict[str, Callable[[Net], Engine]] = {
        "native": open_native,
        "torch": TorchEngine,
        "fallback": lambda net: FallbackEngine(open_native(net), TorchEngine(net)),
    }
    engine = kinds[kind](net)
    batch, wanted = engine.open_batch(), dict[int, list[Hypothesis]]()
    for i, source in enumerate(make_sources(net, 6)):
        search = Search(beam=1 + i % 2, max_extra=5, repetition_guard=False)
        wanted[batch.add(Request([source], search, SPECIAL))] = engine.decode(Request([source], search, SPECIAL))[0]
    gone = batch.add(Request([[4, 2]], Search(), SPECIAL))
    assert batch.remove(gone) and not batch.remove(99) and len(batch) == 6
    found = finish(batch)
    assert not differ([found[i] for i in wanted], [*wanted.values()])
    batch.add(Request([[4, 2]], Search(), SPECIAL))
    batch.close()
    assert len(batch) == 0 and batch.step() == []
    with pytest.raises(NoRoom):
        batch.add(Request([[4, 2]], Search(max_length=1), SPECIAL, Constraints(prefixes=[[4, 5, 6]])))


def test_tokens_come_as_they_are_written() -> None:
    """A token in every step, and together they are the output; a beam says nothing before the end."""
    net = build(FAMILIES["gpt"])
    engine = open_native(net, threads=1)
    for search in (Search(beam=1, max_extra=9), Search(beam=1, sample=True, seed=3, max_extra=9)):
        batch, tokens = engine.open_batch(), []
        batch.add(Request([[5, 9, 7]], search, SPECIAL))
        while len(batch):
            (progress,) = batch.step()
            tokens += [] if progress.token is None else [progress.token]
            assert (progress.hypotheses is None) == bool(len(batch))
        assert progress.hypotheses is not None and progress.hypotheses[0].tokens == tuple(tokens)
        for each in (engine, TorchEngine(net)):
            assert [*stream_tokens(each, Request([[5, 9, 7]], search, SPECIAL))] == tokens
    batch = engine.open_batch()
    batch.add(Request([[5, 9, 7]], Search(beam=3, max_extra=4), SPECIAL))
    while len(batch):
        assert [p.token for p in batch.step()] == [None]
    with pytest.raises(SpecError, match="beam search cannot stream"):
        next(stream_tokens(engine, Request([[5]], Search(beam=3), SPECIAL)))


def test_a_fallback_batch_decodes_what_each_engine_can_together() -> None:
    """Sequences that the first engine refuses are decoded by torch, beside the others, and each gives what it gives alone."""
    net = build(FAMILIES["transformer"])
    engine = FallbackEngine(open_native(net, threads=1), TorchEngine(net))
    plain = Request([[5, 9, 7]], Search(beam=2, max_extra=9), SPECIAL)
    terms = dataclasses.replace(plain, constraints=Constraints(must_include=[[[11, 12]]]))
    assert engine.choose(plain) is engine.first and engine.choose(terms) is engine.rest
    batch = engine.open_batch()
    asked = {batch.add(request): request for request in (plain, terms, plain, terms)}
    gone = batch.add(terms)
    assert batch.remove(gone) and not batch.remove(gone) and len(batch) == 4
    found = finish(batch)
    assert found.keys() == asked.keys() and len(batch) == 0
    for number, request in asked.items():
        assert not differ([found[number]], engine.decode(request))
    assert list(stream_tokens(engine, dataclasses.replace(plain, search=Search(beam=1))))


def test_a_long_prompt_does_not_stop_the_others() -> None:
    """It is read in pieces while the others write, and its output is that of one call."""
    from regard.families import gpt

    net = build(gpt.spec(width=16, depth=1, heads=2, vocab=53, length=1300, dropout=0.0))
    engine, search = open_native(net, threads=1), Search(beam=1, max_extra=6)
    batch, long = engine.open_batch(), [3 + i % 40 for i in range(1200)]
    first = batch.add(Request([[5, 6]], search, SPECIAL))
    assert [p.sequence for p in batch.step()] == [first]
    second = batch.add(Request([long], search, SPECIAL))
    assert [p.sequence for p in batch.step()] == [first]
    assert [p.sequence for p in batch.step()] == [first]
    assert [p.sequence for p in batch.step()] == [first, second]
    assert not differ([finish(batch)[second]], engine.decode(Request([long], search, SPECIAL)))


def test_others_may_add_while_a_step_is_taken() -> None:
    net = build(FAMILIES["gpt"])
    engine, search = open_native(net, threads=2), Search(beam=1, max_extra=9)
    batch, sources, numbers = engine.open_batch(), make_sources(net, 40), dict[int, int]()

    def add(part: range) -> None:
        for i in part:
            numbers[batch.add(Request([sources[i]], search, SPECIAL))] = i

    threads = [threading.Thread(target=add, args=(range(k, 40, 4),)) for k in range(4)]
    for thread in threads:
        thread.start()
    found = {}
    while any(thread.is_alive() for thread in threads) or len(batch):
        found |= {p.sequence: p.hypotheses for p in batch.step() if p.hypotheses is not None}
    alone = engine.decode(Request(sources, search, SPECIAL))
    assert len(found) == 40 and not differ([*found.values()], [alone[numbers[n]] for n in found])


@pytest.mark.parametrize("threads", [1, 2])
def test_cache_of_batch_that_is_never_empty_stays_bounded(threads: int) -> None:
    """Whichever worker starts a sequence and whichever finishes it, memory is used again; when the load falls, it is freed."""
    engine, draw = open_native(build(FAMILIES["transformer"]), threads=threads), random.Random(1)
    batch, over, largest = engine.open_batch(), 0, list[int]()
    for round_ in range(4):
        largest.append(0)
        while over < 150 * (round_ + 1):
            while len(batch) < 32:
                batch.add(Request([[5, 9, 7]], Search(beam=5, max_extra=draw.randrange(2, 25)), SPECIAL))
            over += sum(p.hypotheses is not None for p in batch.step())
            largest[-1] = max(largest[-1], batch.cache_bytes)
    assert largest[3] <= 2 * largest[0]
    for _ in range(200):
        batch.add(Request([[5, 9, 7]], Search(beam=8, max_extra=40), SPECIAL))
    for _ in range(30):
        batch.step()
    held = batch.cache_bytes
    batch.add(Request([[5, 9, 7]], Search(beam=1), SPECIAL))
    while len(batch) > 1:
        batch.step()
    assert batch.cache_bytes < held / 4
    batch.close()
    assert batch.cache_bytes < held / 4 and batch.step() == [] and batch.cache_bytes == 0


def test_requests_outside_the_model_do_not_join() -> None:
    batch = open_native(build(FAMILIES["gpt"]), threads=1).open_batch()
    for source in ([99], [-1], [], [5] * 99):
        with pytest.raises(NativeError, match=r"outside the vocabulary|no tokens|more positions|longer than"):
            batch.add(Request([source], Search(), SPECIAL))
    with pytest.raises(SpecError, match="engine native: terms"):
        batch.add(Request([[5]], Search(), SPECIAL, Constraints(must_include=[[[4]]])))
    assert len(batch) == 0
