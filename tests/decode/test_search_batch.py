"""What is found for a sequence does not depend on which others join and leave its batch."""

from __future__ import annotations

import pytest
import torch

from regard.decode import Constraints, Draw, Hypothesis, Request, Search, SpecialTokens, generate
from regard.decode.generation import start_batch
from regard.decode.search_batch import SearchBatch
from regard.errors import StateError
from regard.families import gpt, gru, transformer
from regard.model.net import Net

pytestmark = pytest.mark.numeric

VOCAB, EOS, BOS = 13, 1, 2
SPECIAL = SpecialTokens(bos=BOS, eos=EOS, pad=0)
SEARCHES = {
    "greedy": Search(beam=1, max_extra=9),
    "sample": Search(beam=1, sample=True, seed=5, max_extra=9),
    "beam": Search(beam=3, n_best=2, max_extra=9),
}


def make_nets() -> dict[str, Net]:
    small = dict(width=8, depth=2)
    specs = {
        "gpt": gpt.spec(**small, heads=2, vocab=VOCAB, length=40),
        "transformer": transformer.spec(**small, heads=2, hidden=16, vocab=VOCAB, length=40),
        "gru": gru.spec(**small, vocab=VOCAB, length=40),
    }
    nets = {}
    for name, spec in specs.items():
        torch.manual_seed(3)
        nets[name] = spec.build().double().eval()
        with torch.no_grad():
            for parameter in nets[name].parameters():
                parameter.normal_(std=0.5)
    return nets


NETS = make_nets()
SOURCES = [[3, 4, EOS], [5, EOS], [6, 7, 8, 9, EOS], [4, 4, EOS], [10, 3, 5, 6, EOS]]


def run_apart(net: Net, search: Search) -> list[list[Hypothesis]]:
    return [
        generate([net], Request([source], search, SPECIAL, draw=Draw([i])))[0] for i, source in enumerate(SOURCES)
    ]  # each in a batch of its own


def enter(net: Net, search: Search, i: int) -> SearchBatch:
    batch = start_batch([net], Request([SOURCES[i]], search, SPECIAL, draw=Draw([i])), seeds=[search.seed])
    batch.keys = [i]
    return batch


def check_same(found: list[Hypothesis], wanted: list[Hypothesis]) -> None:
    assert [h.tokens for h in found] == [h.tokens for h in wanted]
    assert [h.score for h in found] == pytest.approx([h.score for h in wanted], abs=1e-9)


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("way", SEARCHES)
def test_sequences_that_join_one_by_one(name: str, way: str) -> None:
    net, search = NETS[name], SEARCHES[way]
    wanted, found = run_apart(net, search), dict[int, list[Hypothesis]]()
    batch: SearchBatch | None = None
    for i in range(len(SOURCES)):
        entering = enter(net, search, i)
        found |= entering.step().done
        if batch is None or not batch.keys:
            batch = entering
        else:
            batch.join(entering)
        for _ in range(2):
            if batch.keys:
                found |= batch.step().done
    while batch is not None and batch.keys:
        found |= batch.step().done
    for i, each in enumerate(wanted):
        check_same(found[i], each)


@pytest.mark.parametrize("way", SEARCHES)
def test_a_sequence_that_is_dropped_changes_nothing(way: str) -> None:
    net, search = NETS["transformer"], SEARCHES[way]
    batch = start_batch([net], Request(SOURCES, search, SPECIAL, draw=Draw(range(len(SOURCES)))))
    found = dict(batch.step().done)
    batch.drop([0, 2])
    assert not {0, 2} & set(batch.keys)
    while batch.keys:
        found |= batch.step().done
    for i, each in enumerate(run_apart(net, search)):
        if i in found:
            check_same(found[i], each)
    assert {1, 3, 4} <= set(found)


def test_batches_that_cannot_join() -> None:
    net, search = NETS["transformer"], SEARCHES["greedy"]
    one, other = enter(net, search, 0), enter(net, search, 0)
    with pytest.raises(StateError, match="have the key 0; set `keys`"):
        one.join(other)
    prefix = start_batch([net], Request([SOURCES[1]], search, SPECIAL, Constraints(prefixes=[[3]])))
    prefix.keys = [9]
    with pytest.raises(StateError, match="same kinds of constraints"):
        one.join(prefix)
