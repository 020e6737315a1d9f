"""Beam search against slow and exhaustive search, its penalties and its limits."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.decode import Hypothesis, Request, Search, generate
from regard.decode.beam import beam_search
from regard.decode.ensemble import Ensemble
from regard.decode.token_constraints import BannedTokens
from regard.errors import SpecError
from regard.nn.core.coords import Coords
from tests.decode.toys import (
    BOS,
    EOS,
    MARKS,
    PAD,
    Oracle,
    close,
    random_says,
    scratch,
    slow_beam,
    some_sources,
    tiny,
)

pytestmark = pytest.mark.numeric

searches = st.builds(
    lambda beam, n_best, **rest: Search(beam=beam, n_best=min(beam, n_best), **rest),
    beam=st.integers(2, 6), n_best=st.integers(1, 6), length_penalty=st.sampled_from(["gnmt", "power", "none"]),
    alpha=st.sampled_from([0.6, 1.0, 1.5, 0.0, -0.5]), max_extra=st.integers(0, 8),
    max_length=st.none() | st.integers(1, 9), repetition_guard=st.booleans(),
)  # fmt: skip


@given(searches, st.integers(0, 10**6), st.integers(3, 8), st.floats(-2, 2), st.integers(1, 200))
def test_all_sentences_at_once_find_what_a_slow_search_finds_for_each(
    search: Search, seed: int, vocab: int, bias: float, tokens: int
) -> None:
    says = random_says(seed, vocab, bias)
    sources = some_sources(seed, 5, max(vocab, 4))
    found = generate([Oracle(says, vocab)], Request(sources, search, MARKS), batch_tokens=tokens)  # type: ignore[list-item]
    for source, each in zip(sources, found, strict=True):

        def next_of(written: tuple[int, ...], source: list[int] = source) -> torch.Tensor:
            return torch.tensor(says(tuple(source), written), dtype=torch.float64).log_softmax(-1)

        assert close(each, slow_beam(next_of, search, source=len(source)))


@settings(max_examples=12)
@given(searches, st.integers(0, 10**6), st.sampled_from(["post", "pre"]))
def test_states_that_move_with_the_beam_equal_computing_everything_again(search: Search, seed: int, norm: str) -> None:
    net = tiny(seed, norm=norm)
    sources = some_sources(seed, 4)
    found = generate([net], Request(sources, search, MARKS))
    with torch.no_grad():
        for source, each in zip(sources, found, strict=True):

            def next_of(written: tuple[int, ...], source: list[int] = source) -> torch.Tensor:
                return scratch(net, source, written)

            assert close(each, slow_beam(next_of, search, source=len(source)))


@pytest.mark.parametrize("penalty", ["gnmt", "power", "none"])
@pytest.mark.parametrize("limit", [1, 2, 4])
@pytest.mark.parametrize("seed", range(4))
def test_a_beam_as_wide_as_all_outputs_is_exhaustive(penalty: str, limit: int, seed: int) -> None:
    vocab, words = 5, (3, 4)
    says = random_says(seed, vocab)
    search = Search(
        beam=40, n_best=40, length_penalty=penalty, alpha=0.8, max_extra=0, max_length=limit, repetition_guard=False
    )  # type: ignore[arg-type]
    source = [3, 3, 3, EOS]
    wanted = []
    for n in range(limit + 1):
        for written in itertools.product(words, repeat=n):
            path = written if n == limit else (*written, EOS)
            said = torch.tensor([says(tuple(source), path[:i]) for i in range(len(path))], dtype=torch.float64)
            total = float(said.log_softmax(-1).gather(1, torch.tensor(path).view(-1, 1)).sum())
            wanted.append(Hypothesis(written, total, total / search.divisor(len(path))))
    (found,) = generate([Oracle(says, vocab)], Request([source], search, MARKS))  # type: ignore[list-item]
    assert [h.tokens for h in found] == [h.tokens for h in sorted(wanted, key=lambda h: -h.score)]
    assert [h.score for h in found] == pytest.approx(sorted((h.score for h in wanted), reverse=True), abs=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_without_a_penalty_a_beam_of_one_is_greedy(seed: int) -> None:
    net, search = tiny(seed), Search(beam=1, length_penalty="none", max_extra=5, repetition_guard=False)
    for source in some_sources(seed, 6):
        (greedy,) = generate([net], Request([source], search, MARKS))
        ids = torch.tensor([source])
        limits = torch.tensor([search.limit(len(source))])
        steps = Ensemble([net], (ids, Coords.span(len(source))), rows=1, capacity=int(limits))
        banned, first = BannedTokens([BOS, PAD]), torch.tensor([BOS])
        (beam,) = beam_search(steps, first, eos=EOS, limits=limits, search=search, constraints=[banned])
        assert close(beam, greedy)


def test_the_papers_penalty() -> None:
    assert Search(alpha=0.6).divisor(1) == 1.0
    assert Search(alpha=0.6).divisor(7) == pytest.approx(2.0**0.6)
    assert Search(alpha=1.0).divisor(13) == pytest.approx(3.0)
    assert Search(length_penalty="power", alpha=0.5).divisor(9) == pytest.approx(3.0)
    assert Search(length_penalty="none", alpha=0.5).divisor(9) == 1.0


@pytest.mark.parametrize("penalty", ["gnmt", "power", "none"])
@pytest.mark.parametrize("beam", [1, 3])
def test_a_score_is_the_log_probability_over_the_penalty_of_its_length(penalty: str, beam: int) -> None:
    search = Search(beam=beam, n_best=beam, length_penalty=penalty, alpha=0.7, max_extra=2, repetition_guard=False)  # type: ignore[arg-type]
    sources = some_sources(1, 20)
    for source, found in zip(sources, generate([tiny(1)], Request(sources, search, MARKS)), strict=True):
        for h in found:
            length = min(len(h.tokens) + 1, search.limit(len(source)))
            assert h.score == pytest.approx(h.log_prob / search.divisor(length))
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)


@pytest.mark.parametrize("beam", [1, 3])
def test_limits_follow_the_source_up_to_the_longest(beam: int) -> None:
    never = Oracle(lambda source, written: [-1e9, 0, 0, 1, 1.5, 0.5], 6)
    sources = [[3] * n for n in (1, 2, 5, 9)]
    search = Search(beam=beam, max_extra=3, max_length=7, repetition_guard=False)
    found = generate([never], Request(sources, search, MARKS))  # type: ignore[list-item]
    assert [len(h[0].tokens) for h in found] == [4, 5, 7, 7]
    assert Search(max_extra=0, max_length=None).limit(0) == 1, "there always is room for the end mark"


def test_more_outputs_than_the_beam_holds_are_refused() -> None:
    with pytest.raises(SpecError, match="n_best=5 needs a beam of at least as many, got beam=4, sample=False"):
        Search(n_best=5)
    with pytest.raises(SpecError, match="n_best=2 needs a beam of at least as many, got beam=4, sample=True"):
        Search(n_best=2, sample=True)
