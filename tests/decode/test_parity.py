"""Greedy and beam search write what `transformers` writes, token by token, with the same scores."""

from __future__ import annotations

import random

import pytest

from regard.decode import Request, Search, SpecialTokens, generate
from tests.decode.marian import BOS, EOS, PAD, VOCAB, pair, their_generate

pytestmark = pytest.mark.numeric

EXTRA = 6
MODELS = [(12, 1.5, PAD), (14, 1.0, BOS), (27, 1.0, PAD)]
"""Seeds and end-mark biases of random models whose outputs end at many lengths, and the token they start from."""


def sources(count: int = 200) -> list[list[int]]:
    draw = random.Random(3)
    return [[*(draw.randrange(3, VOCAB) for _ in range(draw.randrange(12))), EOS] for _ in range(count)]


@pytest.mark.parametrize(("seed", "bias", "start"), MODELS)
def test_greedy_writes_the_same(seed: int, bias: float, start: int) -> None:
    theirs, ours = pair(seed, eos_bias=bias, start=start)
    given = sources()
    wanted = their_generate(theirs, given, extra=EXTRA, start=start, num_beams=1)
    search = Search(beam=1, max_extra=EXTRA, repetition_guard=False)
    found = generate([ours], Request(given, search, SpecialTokens(start, EOS, PAD)), batch_tokens=100)
    assert [h.tokens for (h,) in found] == [h.tokens for (h,) in wanted]
    room = [len(s) + EXTRA - len(h.tokens) for s, (h,) in zip(given, found, strict=True)]
    assert min(room) == 0, "some outputs should reach the limit"
    assert len(set(room)) > 10, "and the others end at many lengths"


@pytest.mark.parametrize(("seed", "bias", "start"), MODELS)
@pytest.mark.parametrize("beam", [2, 4, 5])
@pytest.mark.parametrize("alpha", [0.6, 1.0])
def test_beams_write_the_same_with_equal_scores(seed: int, bias: float, start: int, beam: int, alpha: float) -> None:
    theirs, ours = pair(seed, eos_bias=bias, start=start)
    given = sources()
    wanted = their_generate(
        theirs, given, extra=EXTRA, start=start, n_best=beam, num_beams=beam, length_penalty=alpha, early_stopping=False
    )
    search = Search(
        beam=beam, n_best=beam, length_penalty="power", alpha=alpha, max_extra=EXTRA, repetition_guard=False
    )
    found = generate([ours], Request(given, search, SpecialTokens(start, EOS, PAD)))
    assert [[h.tokens for h in each] for each in found] == [[h.tokens for h in each] for each in wanted]
    for ours_each, theirs_each in zip(found, wanted, strict=True):
        assert [h.score for h in ours_each] == pytest.approx([h.score for h in theirs_each], abs=1e-5)


def test_without_a_penalty_the_same_as_with_an_exponent_of_zero() -> None:
    seed, bias, start = MODELS[0]
    theirs, ours = pair(seed, eos_bias=bias, start=start)
    wanted = their_generate(theirs, sources(), extra=EXTRA, start=start, num_beams=4, length_penalty=0.0)
    search = Search(beam=4, length_penalty="none", max_extra=EXTRA, repetition_guard=False)
    found = generate([ours], Request(sources(), search, SpecialTokens(start, EOS, PAD)))
    assert [h.tokens for (h,) in found] == [h.tokens for (h,) in wanted]
