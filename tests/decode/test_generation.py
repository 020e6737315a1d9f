"""From sources to hypotheses: order, batches, scores of given outputs, and the edges."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.decode import Constraints, Draw, Request, Search, SpecialTokens, generate, score, stream_tokens
from regard.decode.generation import batch_by_length, pad_rows
from regard.engine.torch_engine import TorchEngine
from regard.errors import SpecError
from regard.families import gpt, llama
from tests.decode.toys import BOS, EOS, MARKS, PAD, Oracle, copies, random_says, scratch, some_sources, tiny

pytestmark = pytest.mark.numeric

WAYS = [Search(beam=1, max_extra=5), Search(beam=3, n_best=3, max_extra=5)]


@given(st.lists(st.integers(0, 30), max_size=40), st.integers(1, 100))
def test_batches_hold_everything_once_within_their_budget(lengths: list[int], tokens: int) -> None:
    batches = list(batch_by_length(lengths, tokens))
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= tokens


@pytest.mark.parametrize("search", WAYS)
def test_results_stand_in_the_order_of_the_sources(search: Search) -> None:
    sources = [s[:-1] for s in some_sources(1, 30)]
    found = generate([Oracle(copies, 9)], Request(sources, search, MARKS), batch_tokens=20)  # type: ignore[list-item]
    assert [list(each[0].tokens) for each in found] == sources


@pytest.mark.parametrize("search", WAYS)
def test_a_sentence_alone_is_the_same_as_in_a_batch(search: Search) -> None:
    net, sources = tiny(9), some_sources(9, 25)
    together = generate([net], Request(sources, search, MARKS))
    for source, wanted in zip(sources, together, strict=True):
        (alone,) = generate([net], Request([source], search, MARKS))
        assert [h.tokens for h in alone] == [h.tokens for h in wanted]
        assert [h.score for h in alone] == pytest.approx([h.score for h in wanted], abs=1e-12)
    lengths = {len(each[0].tokens) - len(source) for source, each in zip(sources, together, strict=True)}
    assert len(lengths) > 3, "outputs end at different times"


@pytest.mark.parametrize("search", [*WAYS, Search(sample=True, max_extra=5)])
@pytest.mark.parametrize("family", [gpt, llama])
@pytest.mark.parametrize("lengths", [(1, 2), (1, 1), (2, 2), (3, 1, 2)])
def test_a_prompt_alone_is_the_same_as_in_a_batch(lengths: tuple[int, ...], family: Any, search: Search) -> None:
    """Of the shortest prompts nothing is read before their last token."""
    net = family.spec(width=16, depth=2, heads=2, hidden=16, vocab=20, length=32).build(0).double().eval()
    prompts = [list(range(5 + i, 5 + i + n)) for i, n in enumerate(lengths)]
    together = generate([net], Request(prompts, search, MARKS))
    for i, (prompt, wanted) in enumerate(zip(prompts, together, strict=True)):
        (alone,) = generate([net], Request([prompt], search, MARKS, draw=Draw([i])))
        assert [h.tokens for h in alone] == [h.tokens for h in wanted]
        assert [h.score for h in alone] == pytest.approx([h.score for h in wanted], abs=1e-12)


def test_what_goes_on_with_a_text_may_repeat_itself() -> None:
    """A short prompt is no measure of how long a line of dashes is."""
    net = gpt.spec(width=16, depth=1, heads=2, hidden=16, vocab=20, length=64).build(0).eval()
    with torch.no_grad():
        for weight in net.parameters():
            weight.zero_()
        net.embed.weight[7] = 1.0
        net.get_parameter("decoder.norm.bias")[:] = 1.0
    ((found,),) = generate([net], Request([[5]], Search(beam=1, max_extra=40), MARKS))
    assert found.tokens == (7,) * 40


# ---------------------------------------------------------------------------------------------- scores of given outputs


@torch.no_grad()
def test_a_score_is_the_sum_of_log_probabilities() -> None:
    net, sources = tiny(3), some_sources(3, 9)
    targets = [[*s[:-1], EOS] for s in some_sources(4, 9)]
    found = score(net, sources, targets, MARKS, tokens=12)
    for source, target, total in zip(sources, targets, found, strict=True):
        wanted = sum(float(scratch(net, source, target[:i])[token]) for i, token in enumerate(target))
        assert total == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("search", [*WAYS, Search(sample=True, top_k=4, max_extra=5)])
def test_a_score_is_the_log_probability_that_search_found(search: Search) -> None:
    net, sources = tiny(8), some_sources(8, 25)
    found = [each[0] for each in generate([net], Request(sources, search, MARKS))]
    limits = [search.limit(len(s)) for s in sources]
    targets = [[*h.tokens, EOS][:limit] for h, limit in zip(found, limits, strict=True)]
    scores = score(net, sources, targets, MARKS)
    assert scores == pytest.approx([h.log_prob for h in found], abs=1e-12)


# ------------------------------------------------------------------------------------------------------------ the edges


@pytest.mark.parametrize("search", [*WAYS, Search(sample=True)])
def test_no_sources_no_results(search: Search) -> None:
    assert generate([tiny(1)], Request([], search, MARKS)) == []
    assert generate([tiny(1)], Request([], search, MARKS, Constraints(prefixes=[]))) == []
    assert score(tiny(1), [], [], MARKS) == []


@pytest.mark.parametrize("search", [*WAYS, Search(sample=True)])
@pytest.mark.parametrize("sources", [[[]], [[], [4, 5, EOS]], [[EOS]], [[4], [5]]])
def test_sources_of_one_token_and_of_none(search: Search, sources: list[list[int]]) -> None:
    net = tiny(1)
    for source, each in zip(sources, generate([net], Request(sources, search, MARKS)), strict=True):
        assert len(each) == search.n_best
        for h in each:
            assert len(h.tokens) <= search.limit(len(source))
            assert h.log_prob < 0


def test_targets_of_no_token_are_certain() -> None:
    assert score(tiny(1), [[4, EOS]], [[]], MARKS) == [0.0]
    first, second = score(tiny(1), [[4, EOS], [5, EOS]], [[], [4, EOS]], MARKS)
    assert first == 0.0
    assert [second] == pytest.approx(score(tiny(1), [[5, EOS]], [[4, EOS]], MARKS))


@pytest.mark.parametrize("search", [Search(beam=1), Search(beam=3, n_best=3), Search(sample=True)])
def test_a_vocabulary_of_nothing_but_marks_writes_nothing(search: Search) -> None:
    for vocab, marks in ((1, SpecialTokens(0, 0, 0)), (3, MARKS)):
        oracle = Oracle(random_says(1, vocab), vocab)
        ((h,),) = generate([oracle], Request([[EOS]], search, marks))  # type: ignore[list-item]
        assert h.tokens == ()
        assert h.log_prob == 0.0 if vocab == 1 else h.log_prob < 0.0


@pytest.mark.parametrize("beam", [1, 3])
def test_no_room_but_for_one_token(beam: int) -> None:
    search = Search(beam=beam, max_extra=0)
    ((h, *_),) = generate([tiny(2)], Request([[EOS]], search, MARKS))
    best = scratch(tiny(2), [EOS], [])
    best[[BOS, PAD]] = -torch.inf
    assert [*h.tokens, EOS][0] == int(best.argmax())


def test_rows_are_filled_at_the_right() -> None:
    assert pad_rows([[3], [], [4, 5]], 7).tolist() == [[3, 7], [7, 7], [4, 5]]
    assert pad_rows([], 7).shape == (0, 0)
    assert pad_rows([[], []], 7).shape == (2, 0)


@pytest.mark.parametrize("search", [Search(beam=1, max_extra=5), Search(sample=True, top_k=4, max_extra=5)])
def test_a_stream_of_tokens_is_what_generate_returns(search: Search) -> None:
    net, sources = tiny(3), some_sources(3, 6)
    for i, (source, (wanted,)) in enumerate(
        zip(sources, generate([net], Request(sources, search, MARKS)), strict=True)
    ):
        streamed = stream_tokens(TorchEngine(net), Request([source], search, MARKS, draw=Draw([i])))
        assert tuple(streamed) == wanted.tokens
        assert torch.is_grad_enabled(), "a generator that waits leaves the caller's mode alone"


def test_a_beam_cannot_stream() -> None:
    with pytest.raises(SpecError, match="beam search cannot stream, got beam=3; use beam=1 or sample, or use run"):
        list(stream_tokens(TorchEngine(tiny(1)), Request([[4, EOS]], Search(beam=3), MARKS)))
    terms = Constraints(must_include=[[[4]]])
    with pytest.raises(SpecError, match="terms need beam search, which cannot stream; leave out the terms, or use run"):
        list(stream_tokens(TorchEngine(tiny(1)), Request([[4, EOS]], Search(beam=1), MARKS, terms)))
