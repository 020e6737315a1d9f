"""Sequences of a continuous batch get what they would get alone, whatever joins, leaves, or is asked beside them."""

from __future__ import annotations

import dataclasses

import pytest

from regard.decode import Constraints, Draw, Hypothesis, Request, Search, generate
from regard.decode.engine import ContinuousBatch
from regard.decode.torch_batch import TorchBatch
from regard.errors import NoRoom
from regard.families import gpt
from regard.model.net import Net
from regard.nn.mixers import Lsh
from tests.decode.test_search_batch import NETS, SEARCHES, SOURCES, SPECIAL, VOCAB, check_same

pytestmark = pytest.mark.numeric

REQUESTS: list[tuple[int, Search, Constraints]] = [
    (0, SEARCHES["greedy"], Constraints()),
    (1, SEARCHES["beam"], Constraints()),
    (2, dataclasses.replace(SEARCHES["greedy"], max_extra=3), Constraints()),
    (3, SEARCHES["sample"], Constraints()),
    (4, dataclasses.replace(SEARCHES["sample"], seed=8), Constraints()),
    (0, SEARCHES["beam"], Constraints(prefixes=[[6, 7]])),
    (2, SEARCHES["beam"], Constraints()),
    (1, SEARCHES["beam"], Constraints(must_include=[[[9, 3]]])),
    (3, SEARCHES["greedy"], Constraints(banned=[5])),
    (4, SEARCHES["greedy"], Constraints()),
]


def run(batch: ContinuousBatch, every: int = 1) -> tuple[list[list[Hypothesis]], dict[int, list[int]]]:
    """All requests, one added after every few steps; what was found, and the tokens as they came."""
    found, tokens, numbers = dict[int, list[Hypothesis]](), dict[int, list[int]](), list[int]()

    def step() -> None:
        for progress in batch.step():
            if progress.token is not None:
                tokens.setdefault(progress.sequence, []).append(progress.token)
            if progress.hypotheses is not None:
                found[progress.sequence] = progress.hypotheses

    for i, (source, search, constraints) in enumerate(REQUESTS):
        numbers.append(batch.add(Request([SOURCES[source]], search, SPECIAL, constraints, draw=Draw([i]))))
        for _ in range(every):
            step()
    while len(batch):
        step()
    return [found[number] for number in numbers], {i: tokens.get(n, []) for i, n in enumerate(numbers)}


def run_alone(net: Net) -> list[list[Hypothesis]]:
    return [
        generate([net], Request([SOURCES[source]], search, SPECIAL, constraints, draw=Draw([i])))[0]
        for i, (source, search, constraints) in enumerate(REQUESTS)
    ]


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("every", [0, 1, 3])
def test_each_gets_what_it_gets_alone(name: str, every: int) -> None:
    net = NETS[name]
    found, tokens = run(TorchBatch([net], entering_tokens=12), every)
    for i, (got, wanted) in enumerate(zip(found, run_alone(net), strict=True)):
        check_same(got, wanted)
        _, search, _ = REQUESTS[i]
        if search.sample or search.beam == 1:
            assert tokens[i] == list(wanted[0].tokens)


def test_one_that_is_removed_makes_no_more_progress() -> None:
    batch = TorchBatch([NETS["transformer"]])
    one, other = (batch.add(Request([SOURCES[i]], SEARCHES["beam"], SPECIAL)) for i in (0, 2))
    batch.step()
    assert batch.remove(one) and not batch.remove(one) and len(batch) == 1
    found = {progress.sequence for _ in range(20) if len(batch) for progress in batch.step()}
    assert found == {other} and len(batch) == 0 and not batch.remove(other)
    waiting = batch.add(Request([SOURCES[0]], SEARCHES["beam"], SPECIAL))
    assert batch.remove(waiting) and batch.step() == []


def test_what_cannot_be_met_is_refused_at_once() -> None:
    batch = TorchBatch([NETS["transformer"]])
    with pytest.raises(NoRoom, match="the required text has 20 tokens"):
        batch.add(Request([SOURCES[0]], SEARCHES["greedy"], SPECIAL, Constraints(prefixes=[[5] * 20])))
    assert len(batch) == 0


def test_a_model_that_cannot_join_is_decoded_in_fixed_batches() -> None:
    spec = gpt.spec(width=8, depth=1, heads=2, vocab=VOCAB, length=40)
    spec = spec.replace("decoder.block.mix", Lsh(heads=2, chunk=4, rounds=1))
    net = spec.build().double().eval()
    assert net.spec.decoder is not None and not net.spec.decoder.joins
    batch = TorchBatch([net])
    first = batch.add(Request([[3, 4]], Search(beam=1, max_extra=3), SPECIAL))
    batch.step()
    later = batch.add(Request([[5]], Search(beam=1, max_extra=3), SPECIAL))
    assert {progress.sequence for progress in batch.step()} == {first}
    over = []
    while len(batch):
        over += [progress.sequence for progress in batch.step() if progress.hypotheses is not None]
    assert over == [first, later]
    first, later = (batch.add(Request([[3, 4]], Search(beam=1, max_extra=n), SPECIAL)) for n in (3, 4))  # other limits
    assert {progress.sequence for progress in batch.step()} == {first}
