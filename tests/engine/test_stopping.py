"""Calls that another thread or Ctrl-C ends: at once, and the model runs on as before.

The calls here would take minutes.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable

import pytest

from regard.decode import Hypothesis, Request, Search
from regard.decode.engine import Engine
from regard.engine.choose_engine import open_native
from regard.engine.torch_engine import TorchEngine
from regard.errors import CallStopped
from regard.model.net import Net
from regard.stopping import Stop, check_stops, list_stops
from tests.engine.models import FAMILIES, SPECIAL, build, differ, make_sources

LONG = [3 + i % 40 for i in range(60_000)]
ENDLESS = Search(beam=8, max_length=200_000, max_extra=200_000)
SHORT = Search(beam=3, max_extra=6)


def step(engine: Engine) -> object:
    batch = engine.open_batch()
    batch.add(Request([LONG], SHORT, SPECIAL))
    return batch.step()


CALLS: dict[str, Callable[[Engine, list[list[int]]], object]] = {
    "decode": lambda engine, sources: engine.decode(Request(sources, ENDLESS, SPECIAL)),
    "decode one": lambda engine, sources: engine.decode(Request(sources[:1], ENDLESS, SPECIAL)),
    "step": lambda engine, _: step(engine),
    "score": lambda engine, sources: engine.score([LONG], [LONG], SPECIAL),
    "encode": lambda engine, _: engine.encode(LONG),
}


@pytest.fixture(scope="module")
def net() -> Net:
    return build(FAMILIES["transformer"])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CALLS)
def test_native_call_ends_when_another_thread_stops_it(net: Net, name: str, threads: int) -> None:
    engine, sources, stop = open_native(net, threads=threads), make_sources(net), Stop()
    before = engine.decode(Request(sources, SHORT, SPECIAL))
    timer = threading.Timer(0.1, stop.set)
    timer.start()
    with stop, pytest.raises(CallStopped, match="the call was stopped"):
        CALLS[name](engine, sources)
    assert engine.decode(Request(sources, SHORT, SPECIAL)) == before


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="only the main thread hears Ctrl-C"
)
@pytest.mark.parametrize("name", CALLS)
def test_native_call_ends_at_ctrl_c(net: Net, name: str) -> None:
    engine, sources = open_native(net, threads=2), make_sources(net)
    before, began = engine.decode(Request(sources, SHORT, SPECIAL)), time.monotonic()
    timer = threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        CALLS[name](engine, sources)
    assert time.monotonic() - began < 60
    assert engine.decode(Request(sources, SHORT, SPECIAL)) == before


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("search", [Search(beam=4, max_extra=9), Search(sample=True, seed=3, max_extra=9)])
def test_batch_goes_on_after_stopped_steps(threads: int, search: Search) -> None:
    """Steps that end anywhere lose no token, and no sequence."""
    net, draw = build(FAMILIES["llama"]), random.Random(1)
    engine, sources = open_native(net, threads=threads), make_sources(net, 40)
    wanted, batch, stopped = (
        [engine.decode(Request([source], search, SPECIAL))[0] for source in sources],
        engine.open_batch(),
        0,
    )
    found, written, numbers = dict[int, list[Hypothesis]](), dict[int, list[int]](), dict[int, int]()
    waiting = [*range(len(sources))]
    while waiting or len(batch):
        while waiting and len(batch) < 20:
            i = waiting.pop()
            numbers[batch.add(Request([sources[i]], search, SPECIAL))] = i
        stop = Stop()
        setter = threading.Thread(
            target=lambda stop, delay: (time.sleep(delay), stop.set()), args=(stop, draw.random() * 1e-3)
        )
        setter.start()
        try:
            with stop:
                progress = batch.step()
        except CallStopped:
            stopped, progress = stopped + 1, []
        setter.join()
        for each in progress:
            if each.token is not None:
                written.setdefault(numbers[each.sequence], []).append(each.token)
            if each.hypotheses is not None:
                found[numbers[each.sequence]] = each.hypotheses
    assert len(found) == len(sources)
    assert not differ([found[i] for i in range(len(sources))], wanted)
    if search.sample:
        assert all([*found[i][0].tokens] == written.get(i, []) for i in found)


def test_torch_ends_when_another_thread_stops_it(net: Net) -> None:
    engine, stop = TorchEngine(net), Stop()
    timer = threading.Timer(0.1, stop.set)
    timer.start()
    with stop, pytest.raises(CallStopped, match="the call was stopped"):
        engine.decode(Request(make_sources(net, 40), Search(beam=4, max_length=9_000, max_extra=9_000), SPECIAL))
    batch = engine.open_batch()
    number = batch.add(Request([[5, 2]], SHORT, SPECIAL))
    for call in (lambda: engine.encode([5, 2]), lambda: engine.score([[5, 2]], [[5, 2]], SPECIAL), batch.step):
        with stop, pytest.raises(CallStopped):
            call()
    while len(batch):
        found = {p.sequence: p.hypotheses for p in batch.step()}
    assert not differ([found[number] or []], engine.decode(Request([[5, 2]], SHORT, SPECIAL)))


def test_stop_counts_in_its_block_and_thread_only() -> None:
    outer, inner = Stop(), Stop()
    inner.set()
    with outer:
        with inner:
            assert list_stops() == (outer, inner) and inner.is_set and not outer.is_set
            with pytest.raises(CallStopped):
                check_stops()
            seen = list[object]()
            other = threading.Thread(target=lambda: seen.append(list_stops()))
            other.start()
            other.join()
            assert seen == [()]
        check_stops()
    assert list_stops() == ()
