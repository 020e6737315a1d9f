"""One attention, two ways, against a loop over pairs."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from regard.errors import StateError
from regard.nn.attention.attend import VECTOR, attend, fold, masked_softmax, unfold
from regard.nn.attention.plan import Needs, plan
from regard.nn.core.coords import Coords
from regard.nn.core.mask import Causal, Everything, Rule, Window, visible
from regard.nn.core.mixer import Site
from regard.nn.positions.position import Relative

pytestmark = pytest.mark.numeric

PLAIN = Needs(weights=True)

CASES: dict[str, tuple[Rule, Coords]] = {
    "no mask": (Everything(), Coords.span(5)),
    "causal": (Causal(), Coords.span(5)),
    "window": (Causal() & Window(1), Coords.span(5)),
    "right padding": (Everything(), Coords.lengths([5, 2])),
    "causal, right padding": (Causal(), Coords.lengths([5, 2])),
    "causal, left padding": (Causal(), Coords.lengths([5, 2], left=True)),
    "an empty row": (Everything(), Coords.lengths([5, 0])),
    "documents": (Causal(), Coords.documents([[2, 3], [1, 3]])),
}
everywhere = pytest.mark.parametrize("case", CASES)
grouped = pytest.mark.parametrize("groups", [4, 2, 1])
biased = pytest.mark.parametrize("biased", [False, True], ids=["", "bias"])


def inputs(groups: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    made = (torch.randn(2, h, 5, 3, dtype=torch.double, requires_grad=True) for h in (4, groups, groups))
    return tuple(made)  # type: ignore[return-value]


def looped(q: Tensor, k: Tensor, v: Tensor, keep: Tensor, scale: float, bias: Tensor | None) -> Tensor:
    """The definition, one query of one head at a time."""
    out = torch.zeros_like(q)
    share = q.shape[1] // k.shape[1]
    for b, h, i in torch.cartesian_prod(*(torch.arange(s) for s in q.shape[:3])).tolist():
        seen = [j for j in range(k.shape[2]) if keep[b, i, j]]
        score = [float(q[b, h, i] @ k[b, h // share, j]) * scale for j in seen]
        score = [s + (0 if bias is None else float(bias[0, h, i, j])) for s, j in zip(score, seen, strict=True)]
        total = sum(math.exp(s) for s in score)
        for s, j in zip(score, seen, strict=True):
            out[b, h, i] += math.exp(s) / total * v[b, h // share, j]
    return out


@everywhere
@grouped
@biased
def test_fused_and_plain_are_the_definition(case: str, groups: int, biased: bool) -> None:
    rule, at = CASES[case]
    bias = torch.randn(1, 4, 5, 5, dtype=torch.double) if biased else None
    keep = visible(rule, at, at)
    keep = torch.ones(2, 5, 5, dtype=torch.bool) if keep is None else keep.expand(2, 5, 5)
    kept = at.kept.expand(2, 5)
    with torch.no_grad():
        q, k, v = inputs(groups)
        wanted = looped(q, k, v, keep, 0.7, bias)
        for needs in (Needs(), PLAIN):
            how = plan(rule, at, at, needs)
            assert how.fused == (needs == Needs())
            out, weights = attend(q, k, v, how, scale=0.7, bias=bias)
            torch.testing.assert_close(out.transpose(1, 2)[kept], wanted.transpose(1, 2)[kept], rtol=0, atol=1e-12)
            assert (weights is None) == how.fused


@everywhere
@grouped
@biased
def test_fused_and_plain_have_equal_gradients(case: str, groups: int, biased: bool) -> None:
    rule, at = CASES[case]
    qkv = inputs(groups)
    bias = torch.randn(1, 4, 5, 5, dtype=torch.double) if biased else None
    pull = torch.randn(2, 4, 5, 3, dtype=torch.double)
    ways = []
    for needs in (Needs(), PLAIN):
        out, _ = attend(*qkv, plan(rule, at, at, needs), scale=0.7, bias=bias)
        ways.append((out, *torch.autograd.grad((out * pull).sum(), qkv)))
    for fused, plain in zip(*ways, strict=True):
        assert fused.isfinite().all()
        torch.testing.assert_close(fused, plain, rtol=0, atol=1e-12)


@pytest.mark.parametrize("needs", [Needs(), PLAIN], ids=["fused", "plain"])
@biased
def test_a_query_with_nothing_to_see_gives_zeros(needs: Needs, biased: bool) -> None:
    rule, at = CASES["causal, left padding"]
    qkv = inputs()
    bias = torch.randn(1, 4, 5, 5, dtype=torch.double) if biased else None
    out, _ = attend(*qkv, plan(rule, at, at, needs), scale=1.0, bias=bias)
    assert (out[1, :, :3] == 0).all()
    assert (out[1, :, 3:] != 0).all()
    for grad in torch.autograd.grad(out.square().sum(), qkv):
        assert grad.isfinite().all()


@everywhere
def test_weights_sum_to_one_over_what_is_seen(case: str) -> None:
    rule, at = CASES[case]
    _, weights = attend(*inputs(), plan(rule, at, at, PLAIN), scale=1.0)
    assert weights is not None
    keep = plan(rule, at, at, PLAIN).keep
    keep = torch.ones(1, 1, 5, 5, dtype=torch.bool) if keep is None else keep
    some = keep.any(-1).expand(2, 4, 5).double()
    torch.testing.assert_close(weights.sum(-1), some, rtol=0, atol=1e-12)
    assert (weights.masked_select(~keep) == 0).all()


def test_the_bias_gets_a_gradient_on_the_plain_path() -> None:
    bias = torch.zeros(1, 4, 5, 5, dtype=torch.double, requires_grad=True)
    how = plan(Causal(), Coords.span(5), Coords.span(5), Needs(bias_grad=True))
    q, k, v = inputs()
    assert torch.autograd.gradcheck(lambda b: attend(q, k, v, how, scale=1.0, bias=b)[0], bias)


@pytest.mark.parametrize("seed", [0, 1])
def test_dropout_falls_on_the_weights(seed: int) -> None:
    """The output is made of some of the weighted values, scaled; what is looked at is before dropout."""
    torch.manual_seed(seed)
    q, k, _ = inputs()
    eye = torch.eye(5, dtype=torch.double).expand(2, 4, 5, 5)
    how = plan(Everything(), Coords.span(5), Coords.span(5), Needs(dropout=True))
    dropped, weights = attend(q, k, eye, how, scale=1.0, dropout=0.5)
    assert weights is not None
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 5, dtype=torch.double))
    kept = dropped != 0
    assert 0.25 < kept.double().mean() < 0.75
    torch.testing.assert_close(dropped[kept], 2 * weights[kept])


def test_content_terms_join_scores_before_scaling_and_outputs() -> None:
    position = Relative(2).build(Site("x", 12, 8, heads=4, head_width=3)).double()
    torch.nn.init.normal_(position.keys)
    torch.nn.init.normal_(position.values)
    at = Coords.span(5)
    p = position.prepare(at, at)
    q, k, v = inputs(2)
    out, _ = attend(q, k, v, plan(Causal(), at, at, Needs(content=True)), scale=0.3, content=(position, p))
    k, v = (t.repeat_interleave(2, 1) for t in (k, v))
    for i in range(5):
        far = [max(min(j - i, 2), -2) + 2 for j in range(i + 1)]
        near = k[:, :, : i + 1] + position.keys[far]
        weights = ((q[:, :, i : i + 1] * near).sum(-1) * 0.3).softmax(-1)
        wanted = (weights.unsqueeze(-1) * (v[:, :, : i + 1] + position.values[far])).sum(2)
        torch.testing.assert_close(out[:, :, i], wanted, rtol=0, atol=1e-12)


class TestFolding:
    """Three hypotheses of each of two sentences queue up as queries of their sentence."""

    def test_every_hypothesis_meets_its_sentences_keys(self) -> None:
        q, k = torch.randn(6, 2, 3, 4, dtype=torch.double), torch.randn(2, 2, 5, 4, dtype=torch.double)
        folded = fold(q, 2)
        assert folded.shape == (2, 2, 9, 4)
        scores = unfold(folded @ k.mT, 6)
        torch.testing.assert_close(scores, q @ k.repeat_interleave(3, 0).mT)

    def test_unfolding_undoes_it(self) -> None:
        q = torch.randn(6, 2, 3, 4).transpose(1, 2).contiguous().transpose(1, 2)
        for sentences in (1, 2, 3, 6):
            assert torch.equal(unfold(fold(q, sentences), 6), q)
        assert fold(q, 6) is q
        assert unfold(q, 6) is q

    @pytest.mark.parametrize("sentences", [4, 7, 0])
    def test_rows_that_belong_to_no_sentence(self, sentences: int) -> None:
        said = (
            rf"^6 rows of queries cannot be divided among the {sentences} sentences of a memory; "
            "when sentences leave, select the memory together with the state$"
        )
        with pytest.raises(StateError, match=said):
            fold(torch.zeros(6, 2, 3, 4), sentences)


@pytest.mark.parametrize("m", [1, VECTOR - 1, VECTOR, 2 * VECTOR + 3])
@pytest.mark.parametrize("masked", [False, True])
def test_softmax_of_bfloat16_scores_is_that_of_float32_rounded(m: int, masked: bool) -> None:
    """Also of rows in which nothing may be seen, and for the gradient."""
    scores, grad = torch.randn(3, 2, 4, m).bfloat16() * 4, torch.randn(3, 2, 4, m).bfloat16()
    keep = (torch.arange(m) < torch.tensor([[0], [1], [m]])).view(3, 1, 1, m) if masked else None
    low, exact = scores.clone().requires_grad_(), scores.double().requires_grad_()
    found, wanted = masked_softmax(low, keep), masked_softmax(exact, keep)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), wanted, rtol=2**-8, atol=0)
    (moved,) = torch.autograd.grad(found, low, grad)
    (wished,) = torch.autograd.grad(wanted, exact, grad.double())
    torch.testing.assert_close(moved.double()[1:], wished[1:], rtol=2**-6, atol=2**-6)
