"""Models stepped together: ensembles, what is shared between hypotheses, and prompts of different lengths."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from regard.decode import Request, Search, generate
from regard.decode.beam import beam_search
from regard.decode.ensemble import Ensemble, check_state_memory
from regard.decode.generation import pad_rows
from regard.decode.greedy import greedy_search
from regard.errors import SpecError
from regard.families import gpt
from regard.nn.core.coords import Coords
from regard.nn.mixers.full import CrossKeyValues
from tests.decode.toys import BOS, EOS, MARKS, scratch, some_sources, tiny

pytestmark = pytest.mark.numeric

# -------------------------------------------------------------------------------------------------------- ensembles


@pytest.mark.parametrize("search", [Search(beam=1), Search(beam=4, n_best=4), Search(sample=True)])
def test_two_equal_models_are_one(search: Search) -> None:
    net, sources = tiny(2), some_sources(2, 10)
    one, two = (generate(nets, Request(sources, search, MARKS)) for nets in ([net], [net, tiny(2)]))
    assert [[h.tokens for h in each] for each in two] == [[h.tokens for h in each] for each in one]
    for a, b in zip(one, two, strict=True):
        assert [h.score for h in b] == pytest.approx([h.score for h in a], abs=1e-12)


def test_an_ensemble_averages_probabilities() -> None:
    nets, source = [tiny(seed) for seed in (1, 2, 3)], [5, 4, EOS]
    steps = Ensemble(nets, (torch.tensor([source]), Coords.span(3)), rows=1, capacity=4)
    written: list[int] = []
    with torch.no_grad():
        for token in (BOS, 4, 7):
            found = steps.advance(torch.tensor([[token]]))
            written += [token] if token != BOS else []
            wanted = torch.stack([scratch(net, source, written).exp() for net in nets]).mean(0).log()
            assert torch.allclose(found[0], wanted, atol=1e-12)


def test_models_of_different_vocabularies_cannot_decide_together() -> None:
    source = (torch.tensor([[4, EOS]]), Coords.span(2))
    with pytest.raises(SpecError, match=r"must share a target vocabulary; these have \[8, 9\] tokens"):
        Ensemble([tiny(1, vocab=9), tiny(1, vocab=8)], source, rows=1, capacity=4)
    with pytest.raises(SpecError, match=r"must share a source vocabulary; these have \[9, 12\] tokens"):
        Ensemble([tiny(1), tiny(1, source_vocab=12)], source, rows=1, capacity=4)


# ------------------------------------------------------------------------------- what belongs to a sentence is not copied


def cross_keys(steps: Ensemble) -> Iterator[Tensor]:
    """The keys and values of the encoder's output that the decoder's states hold."""
    for run in steps._members:
        for block in run.state.blocks:  # type: ignore[attr-defined]
            state = block["cross"]
            assert isinstance(state, CrossKeyValues)
            assert state.k is not None
            assert state.v is not None
            yield from (state.k, state.v)


@torch.no_grad()
def test_hypotheses_of_a_sentence_share_its_keys_without_copies() -> None:
    beam, sources = 3, torch.tensor([[3, 4, 5, EOS], [6, 7, 8, EOS]])
    steps = Ensemble([tiny(1)], (sources, Coords.span(4)), rows=2, beam=beam, capacity=9)
    steps.advance(torch.full((6, 1), BOS))
    before = [(t.data_ptr(), t.shape) for t in cross_keys(steps)]
    assert all(shape[0] == 2 for _, shape in before), "a row a sentence, not a row a hypothesis"
    for rows in ([0, 0, 1, 5, 4, 3], [2, 1, 0, 3, 3, 3], [0, 1, 2, 3, 4, 5]):
        steps.select(torch.tensor(rows))
        steps.advance(torch.tensor([[3], [4], [5], [6], [7], [8]]))
        assert [(t.data_ptr(), t.shape) for t in cross_keys(steps)] == before
    memory = steps._members[0].memory
    assert memory is not None
    assert memory.keys.shape[0] == 2
    second = [t[1:].clone() for t in cross_keys(steps)]
    steps.select(torch.tensor([4, 3, 5]), torch.tensor([1]))
    steps.advance(torch.tensor([[3], [4], [5]]))
    assert all(torch.equal(t, kept) for t, kept in zip(cross_keys(steps), second, strict=True)), "the first one left"


def test_a_search_copies_keys_only_when_a_sentence_leaves() -> None:
    seen: list[list[tuple[int, int]]] = []

    class Watched(Ensemble):
        def advance(self, tokens: Tensor, at: Coords | None = None) -> Tensor:
            after = super().advance(tokens, at)
            seen.append([(t.shape[0], t.data_ptr()) for t in cross_keys(self)])
            return after

    sources, search = some_sources(9, 6), Search(beam=3, max_extra=5)
    steps = Watched(
        [tiny(9)], (pad_rows(sources, 1), Coords.lengths([len(s) for s in sources])), rows=6, beam=3, capacity=12
    )
    limits = torch.tensor([search.limit(len(s)) for s in sources])
    beam_search(steps, torch.full((6,), BOS), eos=EOS, limits=limits, search=search)
    sentences = [step[0][0] for step in seen]
    assert len(set(sentences)) > 2
    assert len(set(sentences)) < len(sentences), "some steps keep all sentences, others lose some"
    for before, after in itertools.pairwise(seen):
        assert (before == after) == (before[0][0] == after[0][0])


@torch.no_grad()
def test_moving_hypotheses_about_equals_having_written_them_so() -> None:
    net, sources = tiny(7), [[3, 4, EOS], [6, EOS, 1]]
    at = Coords.lengths([3, 2])
    steps = Ensemble([net], (torch.tensor(sources), at), rows=2, beam=2, capacity=8)
    steps.advance(torch.full((4, 1), BOS))
    steps.advance(torch.tensor([[3], [4], [5], [6]]))
    steps.select(torch.tensor([1, 0, 3, 3]))
    steps.advance(torch.tensor([[7], [7], [7], [8]]))
    steps.select(torch.tensor([3, 2]), torch.tensor([1]))
    found = steps.advance(torch.tensor([[4], [3]]))
    assert torch.allclose(found[0], scratch(net, [6, EOS], [6, 8, 4]))
    assert torch.allclose(found[1], scratch(net, [6, EOS], [6, 7, 3]))


# ------------------------------------------------------------------------------------ prompts of different lengths


@pytest.mark.parametrize("left", [True, False])
@torch.no_grad()
def test_prompts_of_different_lengths_go_on_as_each_would_alone(left: bool) -> None:
    net = gpt.spec(width=8, depth=2, heads=2, vocab=9, length=32, dropout=0.0).build(3).double().eval()
    for parameter in net.parameters():
        parameter *= 20
    prompts = [[3, 4, 5, 6], [7], [8, 3]]
    search = Search(beam=1, max_length=9)

    def go_on(rows: list[list[int]]) -> list[tuple[int, ...]]:
        before, last = [r[:-1] for r in rows], torch.tensor([r[-1] for r in rows])
        n = max(len(r) for r in before)
        gaps = [[1] * (n - len(r)) for r in before]
        ids = torch.tensor([[*g, *r] if left else [*r, *g] for g, r in zip(gaps, before, strict=True)])
        steps = Ensemble([net], None, rows=len(rows), capacity=20)
        if n:
            steps.advance(ids, Coords.lengths([len(r) for r in before], left=left))
        limits = torch.tensor([4 + len(r) for r in rows])  # different, so that rows leave one after another
        found = greedy_search(steps, last, eos=EOS, limits=limits, search=search)
        return [h.tokens for h in found]

    together = go_on(prompts)
    assert together == [go_on([p])[0] for p in prompts]
    assert len(set(together)) == 3


def test_states_that_do_not_fit_are_not_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A beam of 1,024 over a million tokens: the caller halves its batch, or says so."""
    net = gpt.spec(width=16, depth=2, heads=2, vocab=11, length=64).build(seed=1)
    monkeypatch.setattr("regard.decode.ensemble.free_memory", lambda: 10**9)
    with pytest.raises(
        MemoryError, match=r"8,192 hypotheses of 1,000,000 tokens take [\d,]+ bytes; 1,000,000,000 are free"
    ):
        Ensemble([net], None, rows=8, beam=1024, capacity=1_000_000)
    check_state_memory([net], 8, 64)
    monkeypatch.setattr("regard.decode.ensemble.free_memory", lambda: 0)  # nobody knows
    check_state_memory([net], 8192, 1_000_000)
