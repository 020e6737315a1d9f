"""Drawn tokens follow the probabilities they should, and depend on (seed, index, step) alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers.generation.logits_process import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from regard.decode import Request, Search, generate
from regard.decode.sample import draw_uniform, make_sampler, truncate
from regard.errors import SpecError
from tests.decode.toys import MARKS, scratch, some_sources, tiny

pytestmark = pytest.mark.numeric

DRAWS = 20_000
UNLIKELY = 3.3
"""Standard normal deviations that chance exceeds once in two thousand times."""

logits = st.tuples(st.integers(0, 10**6), st.integers(2, 40), st.floats(0.1, 4.0)).map(
    lambda x: torch.randn(3, x[1], generator=torch.Generator().manual_seed(x[0]), dtype=torch.float64) * x[2]
)


def chi_square(tokens: Tensor, probs: Tensor) -> float:
    """How far counts lie from what the probabilities promise, in (Wilson-Hilferty) standard normal deviations."""
    seen = probs > 0
    assert not tokens.bincount(minlength=len(probs))[~seen].any(), "drew a token that cannot be"
    expected, counts = probs[seen] * len(tokens), tokens.bincount(minlength=len(probs))[seen]
    freedom = int(seen.sum()) - 1
    ratio = float(((counts - expected) ** 2 / expected).sum()) / freedom
    return (ratio ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))


@pytest.mark.parametrize(
    "settings", [{}, {"temperature": 0.5}, {"temperature": 2.0}, {"top_k": 4}, {"top_p": 0.7}, {"min_p": 0.2}]
)
def test_tokens_come_as_often_as_they_are_likely(settings: dict[str, float]) -> None:
    search = Search(sample=True, seed=7, **settings)  # type: ignore[arg-type]
    log_probs = torch.randn(12, generator=torch.Generator().manual_seed(2)).log_softmax(-1)
    log_probs[[0, 5, 11]] = -torch.inf  # what a constraint forbids, at the borders too
    drawn = make_sampler(search)(log_probs.expand(DRAWS, -1), torch.arange(DRAWS), 3)
    kept = {k: v for k, v in settings.items() if k != "temperature"}
    wanted = truncate(log_probs.double() / search.temperature, **kept)  # type: ignore[arg-type]
    assert abs(chi_square(drawn, wanted / wanted.sum())) < UNLIKELY


@pytest.mark.parametrize(("draw", "token"), [(0.0, 2), (1 - 2**-53, 4)])
def test_the_ends_of_the_range_draw_nothing_forbidden(monkeypatch: pytest.MonkeyPatch, draw: float, token: int) -> None:
    monkeypatch.setattr("regard.decode.sample.draw_uniform", lambda seed, index, step: np.full(len(index), draw))
    log_probs = torch.tensor([[-torch.inf, -torch.inf, -1.0, -2.0, -3.0, -torch.inf]])
    assert make_sampler(Search(sample=True))(log_probs, torch.arange(1), 0).tolist() == [token]


def test_draws_are_even_and_independent_of_seed_index_and_step() -> None:
    index = np.arange(DRAWS)
    base = draw_uniform(1, index, 0)
    assert base.min() >= 0
    assert base.max() < 1
    cells = torch.from_numpy((base * 50).astype(np.int64))
    assert abs(chi_square(cells, torch.full((50,), 0.02, dtype=torch.float64))) < UNLIKELY
    for other in (
        draw_uniform(2, index, 0),
        draw_uniform(1, index, 1),
        draw_uniform(1, index + 1, 0),
        draw_uniform(-1, index, 0),
    ):
        assert abs(np.corrcoef(base, other)[0, 1]) * math.sqrt(DRAWS) < UNLIKELY
    assert len(set(np.concatenate([draw_uniform(1, index, step) for step in range(5)]))) == 5 * DRAWS


@given(logits, st.integers(1, 50))
def test_top_k_keeps_the_k_likeliest(scores: Tensor, k: int) -> None:
    found = truncate(scores, top_k=k)
    assert (found > 0).sum(-1).tolist() == [min(k, scores.shape[1])] * 3
    assert torch.allclose(normal(found), TopKLogitsWarper(k)(None, scores).softmax(-1))


@given(logits, st.floats(0.01, 0.99))
def test_top_p_keeps_the_fewest_that_hold_the_mass(scores: Tensor, p: float) -> None:
    found = truncate(scores, top_p=p)
    for row, probs in zip(found, scores.softmax(-1), strict=True):
        mass, keep = 0.0, set()
        for token in probs.argsort(descending=True).tolist():
            if mass >= p:
                break
            mass, keep = mass + float(probs[token]), keep | {token}
        assert set(row.nonzero().flatten().tolist()) == keep
    assert torch.allclose(normal(found), TopPLogitsWarper(p)(None, scores).softmax(-1))


@given(logits, st.floats(0.01, 0.99))
def test_min_p_keeps_what_is_not_far_below_the_likeliest(scores: Tensor, p: float) -> None:
    found, probs = truncate(scores, min_p=p), scores.softmax(-1)
    assert torch.equal(found > 0, probs >= p * probs.amax(-1, keepdim=True))
    assert torch.allclose(normal(found), MinPLogitsWarper(p)(None, scores).softmax(-1))


@given(logits, st.integers(1, 20), st.floats(0.1, 1.0), st.floats(0.0, 0.5))
def test_narrowing_in_several_ways_goes_in_the_usual_order(scores: Tensor, k: int, p: float, low: float) -> None:
    wanted = scores
    for warp in (TopKLogitsWarper(k), TopPLogitsWarper(p), MinPLogitsWarper(low)):
        wanted = warp(None, wanted)
    assert torch.allclose(normal(truncate(scores, top_k=k, top_p=p, min_p=low)), wanted.softmax(-1))


def normal(probs: Tensor) -> Tensor:
    return probs / probs.sum(-1, keepdim=True)


def test_the_same_input_draws_the_same_output_in_any_batch() -> None:
    net, sources = tiny(3), some_sources(3, 12)
    search = Search(sample=True, top_p=0.9, max_extra=6, seed=11)
    together = generate([net], Request(sources, search, MARKS))
    assert together == generate([net], Request(sources, search, MARKS))
    for tokens in (1, 7, 20):
        apart = generate([net], Request(sources, search, MARKS), batch_tokens=tokens)
        assert [h.tokens for (h,) in apart] == [h.tokens for (h,) in together]
        assert [h.log_prob for (h,) in apart] == pytest.approx([h.log_prob for (h,) in together])
    again = generate([net], Request(sources, Search(sample=True, top_p=0.9, max_extra=6, seed=12), MARKS))
    assert [h.tokens for (h,) in again] != [h.tokens for (h,) in together], "another seed, another draw"


def test_equal_inputs_draw_different_outputs_as_likely_as_the_model_says() -> None:
    net, source, count = tiny(4, vocab=6), [3, 4, 0], 2000
    search = Search(sample=True, max_length=1, repetition_guard=False, seed=5)
    found = generate([net], Request([source] * count, search, MARKS))
    drawn = torch.tensor([h.tokens[0] if h.tokens else 0 for (h,) in found])
    probs = scratch(net, source, []).exp().detach()
    probs[[MARKS.bos, MARKS.pad]] = 0
    assert abs(chi_square(drawn, probs / probs.sum())) < UNLIKELY


def test_a_cold_draw_is_greedy() -> None:
    net, sources = tiny(6), some_sources(6, 10)
    cold = generate([net], Request(sources, Search(sample=True, temperature=0.001), MARKS))
    assert cold == generate([net], Request(sources, Search(beam=1), MARKS))
    assert generate([net], Request(sources, Search(sample=True, top_k=1), MARKS)) == cold


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"temperature": 0.0}, "temperature: input should be greater than or equal to 0.001, got 0.0"),
        ({"top_p": 0.0}, "top_p: input should be greater than 0, got 0.0"),
        ({"min_p": 1.0}, "min_p: input should be less than 1, got 1.0"),
        ({"temperature": math.inf}, "temperature: input should be a finite number, got inf"),
        ({"alpha": math.nan}, "alpha: input should be a finite number, got nan"),
        ({"alpha": 1e9}, "alpha: input should be less than or equal to 10, got 1000000000.0"),
    ],
)
def test_settings_without_sense_are_refused(setting: dict[str, float], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Search(**setting)  # type: ignore[arg-type]
